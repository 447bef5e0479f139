#include "worker/elastic/device_parts.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "runtime/core/request.h"
#include "runtime/gpu/module.h"

namespace hvd::worker {

using runtime::gpu::KeptIn;

namespace {

// Each tensor in a copy is aligned to what the device's own allocator aligns to.
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

KeptIn place_of_copies(std::size_t bytes, std::size_t free_bytes,
                       const std::optional<std::size_t>& limit) {
  const std::size_t most = limit.value_or(free_bytes / kOnDeviceShare);
  return bytes <= most / 2 ? KeptIn::device : KeptIn::pinned;
}

DeviceParts::DeviceParts(DeviceParts&& other) noexcept
    : options_(std::move(other.options_)),
      device_(other.device_),
      tensors_(std::move(other.tensors_)),
      bytes_(other.bytes_),
      copier_(std::move(other.copier_)),
      place_(other.place_),
      copies_(std::exchange(other.copies_, {})) {}

Status DeviceParts::add(const std::string& name, const TensorView& tensor) {
  const auto refused = [&](const auto&... why) {
    return Status(Code::invalid_argument, cat("State::add(): \"", name, "\": ", why...));
  };
  if (const Status fits = runtime::check_shape(tensor.shape, tensor.type); !fits.ok()) {
    return refused(fits.message());
  }
  if (tensor.data == nullptr && tensor.elements() > 0) {
    return refused("it has ", tensor.elements(), " elements, but no memory (data is null)");
  }
  if (!tensors_.empty() && tensor.device.cuda != device_) {
    return refused("it is on CUDA device ", tensor.device.cuda, ", but \"", tensors_.front().name,
                   "\" is on device ", device_, ": a rank works on one GPU");
  }
  device_ = tensor.device.cuda;
  tensors_.push_back({name, tensor, bytes_});
  bytes_ += aligned(tensor.bytes());
  return {};
}

std::vector<std::string> DeviceParts::names() const {
  std::vector<std::string> names;
  for (const auto& part : tensors_) names.push_back(part.name);
  return names;
}

std::vector<std::uint64_t> DeviceParts::sizes() const {
  std::vector<std::uint64_t> sizes;
  for (const auto& part : tensors_) sizes.push_back(part.tensor.bytes());
  return sizes;
}

Status DeviceParts::open() {
  if (copier_) return {};
  auto open = options_.open;
  if (!open) {
    auto module = runtime::gpu::module();
    HVD_RETURN_IF_ERROR(module.status());
    open = (*module)->open_copier;
  }
  auto opened = open(device_);
  HVD_RETURN_IF_ERROR(opened.status());
  copier_ = std::move(*opened);
  return {};
}

// Decided once: a state does not move from one kind of memory to the other.
Status DeviceParts::place() {
  if (place_) return {};
  auto free = copier_->free_bytes();
  HVD_RETURN_IF_ERROR(free.status());
  place_ = place_of_copies(bytes_, *free, options_.on_device_limit);
  HVD_LOG(debug, "copies of the state's tensors on CUDA device "
                     << device_ << ", " << bytes_ << " bytes each, are kept "
                     << (*place_ == KeptIn::device ? "there" : "in pinned host memory"));
  return {};
}

Status DeviceParts::make_room(std::size_t copy) {
  if (tensors_.empty() || copies_[copy].memory != nullptr) return {};
  HVD_RETURN_IF_ERROR(open());
  HVD_RETURN_IF_ERROR(place());
  auto memory = copier_->allocate(*place_, bytes_);
  if (memory.status().code() == Code::resource_exhausted && place_ == KeptIn::device) {
    place_ = KeptIn::pinned;
    memory = copier_->allocate(*place_, bytes_);
  }
  HVD_RETURN_IF_ERROR(memory.status().with_context("room for a copy of the state"));
  copies_[copy] = {static_cast<std::byte*>(*memory), *place_};
  return {};
}

Status DeviceParts::copy_all(std::size_t copy, bool back) {
  HVD_RETURN_IF_ERROR(copier_->follow(options_.stream));
  for (const auto& part : tensors_) {
    void* const kept = copies_[copy].memory + part.offset;
    void* const own = part.tensor.data;
    HVD_RETURN_IF_ERROR(copier_->copy(back ? own : kept, back ? kept : own, part.tensor.bytes()));
  }
  return copier_->lead(options_.stream);
}

Status DeviceParts::keep(std::size_t copy) {
  if (tensors_.empty()) return {};
  HVD_RETURN_IF_ERROR(make_room(copy));
  // An error of the previous copy, or of the program, may have come since.
  HVD_RETURN_IF_ERROR(copier_->health());
  return copy_all(copy, false);
}

Status DeviceParts::load(std::size_t copy) {
  return tensors_.empty() ? Status() : copy_all(copy, true);
}

void DeviceParts::let_go(std::size_t copy) {
  const Kept kept = std::exchange(copies_[copy], {});
  if (kept.memory == nullptr) return;
  if (const Status done = copier_->wait(); !done.ok()) HVD_LOG(warning, done.message());
  copier_->release(kept.where, kept.memory);
}

void DeviceParts::forget() {
  for (std::size_t copy = 0; copy < copies_.size(); ++copy) let_go(copy);
}

DeviceParts DeviceParts::of_the_same_tensors() const {
  DeviceParts other(options_);
  other.device_ = device_;
  other.tensors_ = tensors_;
  other.bytes_ = bytes_;
  other.copier_ = copier_;
  other.place_ = place_;
  return other;
}

Result<std::uint64_t> DeviceParts::digest(std::size_t copy) {
  return copier_->digest(copies_[copy].memory, bytes_);
}

Result<std::vector<std::pair<std::string, std::string>>> DeviceParts::digests(std::size_t copy) {
  std::vector<std::pair<std::string, std::string>> digests;
  for (const auto& part : tensors_) {
    const auto digest = copier_->digest(copies_[copy].memory + part.offset, part.tensor.bytes());
    HVD_RETURN_IF_ERROR(digest.status());
    std::string hex;
    for (int shift = 56; shift >= 0; shift -= 8) {
      const char byte = static_cast<char>(*digest >> shift);
      append_hex(hex, {&byte, 1});
    }
    digests.emplace_back(part.name, std::move(hex));
  }
  return digests;
}

}  // namespace hvd::worker
