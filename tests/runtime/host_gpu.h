// A Gpu in the memory of the host, for tests where there is none: lanes are threads that work off
// what was put into them, and collectives meet by their ids, as the library's do. It does what the
// kernels do, with their own code for each element (gpu/passage.h), so that everything above the
// device is tested as it is: types, packing, rows, splits, the order of events, abort.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <hvd/cuda_event.h>

#include "base/text.h"
#include "runtime/gpu/gpu.h"

namespace hvd::test {

// Where communicators meet: of one test, and all its ranks.
class Fabric {
 public:
  // A round of one communicator: everybody leaves something, and gets what all left.
  class Room {
   public:
    explicit Room(int size)
        : size_(size),
          gone_(static_cast<std::size_t>(size)),
          left_(static_cast<std::size_t>(size)) {}
    // False if this one had to leave before all were there. That others have left does not help:
    // a kernel of the library, too, waits until its own rank ends it.
    bool meet(int rank, const void* mine, std::vector<const void*>& all);
    // Those who have met meet once more, come what may.
    void meet_again();
    void leave(int rank);  // nobody meets here any more

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int size_;
    int here_ = 0;
    std::uint64_t round_ = 0;
    bool broken_ = false;
    std::vector<bool> gone_;
    std::vector<const void*> left_, complete_;
  };

  std::string new_id();
  std::shared_ptr<Room> room(const std::string& id, int size);
  // Of all ranks.
  std::atomic<int> living = 0;  // communicators
  std::atomic<int> revoked = 0;
  std::atomic<int> aborted = 0;
  std::atomic<int> finalized = 0;
  std::atomic<int> scattered = 0;  // reducescatters asked for

 private:
  std::mutex mutex_;
  int ids_ = 0;
  std::map<std::string, std::shared_ptr<Room>> rooms_;
};

struct HostGpuOptions {
  std::string uuid;  // empty: one for each
  int library_version = 22809;
  bool may_share_device = false;
  bool can_revoke = true;
  bool adds_float8 = true;
};

// Never destroyed before its lanes are empty.
std::unique_ptr<runtime::gpu::Gpu> make_host_gpu(Fabric& fabric, int device, int lanes,
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
  void* cuda_event() const override { return const_cast<HostEvent*>(this); }
  void set() { state_->set(); }
  void* waiting_stream() const override { return stream; }
  std::atomic<void*>* stream = nullptr;  // what waits for the result
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace hvd::test
