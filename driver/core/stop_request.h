// Asks a job to end as SIGTERM does, from any thread: also before it begins, when it is ended at
// once, and after its end, when nothing happens.
#pragma once

#include <functional>
#include <mutex>
#include <utility>

namespace hvd::driver {

class StopRequest {
 public:
  void make() {
    const std::lock_guard lock(mutex_);
    is_made_ = true;
    if (stop_) stop_();
  }
  // By the job. `stop` is called with each request and for an earlier one, under a lock. Null: the
  // job has ended.
  void serve(std::function<void()> stop) {
    const std::lock_guard lock(mutex_);
    stop_ = std::move(stop);
    if (stop_ && is_made_) stop_();
  }

 private:
  std::mutex mutex_;
  std::function<void()> stop_;  // guarded by mutex_
  bool is_made_ = false;        // guarded by mutex_
};

}  // namespace hvd::driver
