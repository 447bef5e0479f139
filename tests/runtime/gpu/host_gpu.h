// A Gpu in the memory of the host, for tests where there is none: lanes are threads that work off
// what was put into them, and collectives meet by their ids, as the library's do. It does what the
// kernels do, with their own code for each element (gpu/element_cast.h), so that everything above
// the device is tested as it is: types, packing, rows, splits, the order of events, abort.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <hvd/cuda_event.h>

#include "base/text.h"
#include "runtime/gpu/gpu.h"
#include "tests/runtime/gpu/host_network.h"

namespace hvd::test {

// Where what is allocated lies, and where a GPU finds what an address means.
class HostGpuMemory {
 public:
  virtual ~HostGpuMemory() = default;
  virtual void* allocate(std::size_t bytes);
  virtual void release(void* memory);
  virtual void* reach(const void* address) const { return const_cast<void*>(address); }
  static HostGpuMemory& plain();  // as it is
};

struct HostGpuOptions {
  std::string uuid;  // empty: one for each
  int library_version = 22809;
  bool may_share_device = false;
  bool can_revoke = true;
  bool adds_float8 = true;
  HostGpuMemory* memory = &HostGpuMemory::plain();
};

// Never destroyed before its lanes are empty.
std::unique_ptr<runtime::gpu::Gpu> make_host_gpu(Network& network, int device, int lanes,
                                                 const HostGpuOptions& options = {});

// For GpuWorldOptions::open.
inline std::function<Result<std::unique_ptr<runtime::gpu::Gpu>>(int device, int lanes)>
open_host_gpus(Fabric& fabric, const HostGpuOptions& options = {}) {
  return [&fabric, options](int device, int lanes) -> Result<std::unique_ptr<runtime::gpu::Gpu>> {
    return make_host_gpu(fabric, device, lanes, options);
  };
}

// One that comes when the test says so; lanes wait for it, also when it has gone meanwhile.
class HostEvent final : public CudaReadyEvent {
 public:
  class State {
   public:
    bool is_set() const;
    void wait();
    void set();

   private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool set_ = false;
  };

  bool ready() const override { return state_->is_set(); }
  void wait() override { state_->wait(); }
  // Only code that compares or passes it on sees this event of no device.
  cuda::Event cuda_event() const override {
    return reinterpret_cast<cuda::Event>(const_cast<HostEvent*>(this));
  }
  void set() { state_->set(); }
  cuda::Stream waiting_stream() const override { return reinterpret_cast<cuda::Stream>(stream); }
  std::atomic<void*>* stream = nullptr;  // what waits for the result
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace hvd::test
