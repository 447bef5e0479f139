// A CommunicatorTeardown with a deadline beside it: a thread that ends the process if a step takes
// too long, since the caller of that step hangs in it. And the list of communicators that may not
// be destroyed yet.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/gpu/communicator_teardown.h"
#include "runtime/gpu/gpu.h"

namespace hvd::runtime::gpu {

// Safe from any thread.
class AsyncDestroy {
 public:
  explicit AsyncDestroy(CommunicatorTeardown::Limits limits);
  ~AsyncDestroy();
  AsyncDestroy(const AsyncDestroy&) = delete;
  AsyncDestroy& operator=(const AsyncDestroy&) = delete;

  // Tells the machine of an event, and returns what is to be done now.
  template <typename Event>
  CommunicatorTeardown::Action tell(Event event) {
    const std::lock_guard lock(mutex_);
    const auto action = event(teardown_);
    changed_.notify_all();
    return action;
  }
  CommunicatorTeardown::State state() const {
    const std::lock_guard lock(mutex_);
    return teardown_.state();
  }

 private:
  void watch_deadline();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  CommunicatorTeardown teardown_;
  bool over_ = false;
  std::thread clock_;
};

// Communicators of a failed world. They free nothing until no peer touches their memory any more:
// until the members have met again in the next world, which a rank enters only after the failed
// world has ended for it.
struct RetiredCommunicators {
  std::shared_ptr<Gpu> gpu;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::unique_ptr<AsyncDestroy> teardown;
};
void retire_communicators(RetiredCommunicators retired);
// Destroys all of them in this process: the peers are idle.
void destroy_retired();

}  // namespace hvd::runtime::gpu
