// The one reason why a world has failed: the first failure that is known, for all that wait for it.
// Safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "runtime/core/failure.h"

namespace hvd::runtime {

class Verdict {
 public:
  // Only the first failure counts; false if one was set already.
  bool set(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return false;
    failure_ = failure;
    failure_.world_failed = true;
    known_ = true;
    changed_.notify_all();
    return true;
  }
  bool known() const { return known_; }
  Failure get() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  Failure wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !failure_.ok(); });
    return failure_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> known_ = false;
  Failure failure_;
};

}  // namespace hvd::runtime
