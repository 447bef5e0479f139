// The tensors of a State that are on a GPU, and up to two copies of all of them: what host memory
// is to everything else of a state (store.h). A copy is one piece of memory, on the device or, if
// two of them are more than a limit, in pinned host memory. For one thread at a time.
//
// Copies are made by a stream of their own, after what the program's stream has by then; that
// stream goes on after them, and no thread waits. So a copy counts as kept before it is made: it is
// lost only together with the device, and with that this process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hvd/tensor.h>

#include "base/status.h"
#include "runtime/gpu/copier.h"

namespace hvd::worker {

struct DeviceOptions {
  cuda::Stream stream = nullptr;               // of the program; null: the legacy one
  std::optional<std::size_t> on_device_limit;  // bytes; nothing: kOnDeviceShare of what is free
  // Empty: by the module for NCCL.
  std::function<Result<std::unique_ptr<runtime::gpu::Copier>>(int device)> open = {};
};

// The part of the memory that is free when the first copy is made: the rest is for what the program
// computes.
inline constexpr std::size_t kOnDeviceShare = 4;

// Where copies of so many bytes go.
runtime::gpu::KeptIn place_of_copies(std::size_t bytes, std::size_t free_bytes,
                                     const std::optional<std::size_t>& limit);

class DeviceParts {
 public:
  explicit DeviceParts(DeviceOptions options = {}) : options_(std::move(options)) {}
  ~DeviceParts() { forget(); }
  DeviceParts(const DeviceParts&) = delete;
  DeviceParts& operator=(const DeviceParts&) = delete;
  DeviceParts(DeviceParts&& other) noexcept;
  DeviceParts& operator=(DeviceParts&& other) = delete;

  // invalid_argument: it is on another device than those before, or in no memory.
  Status add(const std::string& name, const TensorView& tensor);
  bool empty() const { return tensors_.empty(); }
  int device() const { return device_; }
  std::vector<std::string> names() const;
  std::vector<std::uint64_t> sizes() const;       // of the tensors
  std::uint64_t bytes() const { return bytes_; }  // of a copy

  // `copy`: 0 or 1.
  Status make_room(std::size_t copy);
  Status keep(std::size_t copy);
  Status load(std::size_t copy);
  // Waits for what is under way.
  void let_go(std::size_t copy);
  void forget();  // both
  // The same tensors, and no copies.
  DeviceParts of_the_same_tensors() const;

  // ---- for transfers ----
  struct Kept {
    std::byte* memory = nullptr;
    runtime::gpu::KeptIn where = runtime::gpu::KeptIn::device;
  };
  const Kept& kept(std::size_t copy) const { return copies_[copy]; }
  Result<std::uint64_t> digest(std::size_t copy);
  // Of each tensor, by name, in hexadecimal.
  Result<std::vector<std::pair<std::string, std::string>>> digests(std::size_t copy);
  // Opened before.
  runtime::gpu::Copier& copier() { return *copier_; }
  Status open();

 private:
  struct Part {
    std::string name;
    TensorView tensor;
    std::size_t offset = 0;  // in a copy
  };
  Status place();
  Status copy_all(std::size_t copy, bool back);

  DeviceOptions options_;
  int device_ = Device::kHost;
  std::vector<Part> tensors_;
  std::size_t bytes_ = 0;
  std::shared_ptr<runtime::gpu::Copier> copier_;
  std::optional<runtime::gpu::KeptIn> place_;
  std::array<Kept, 2> copies_;
};

}  // namespace hvd::worker
