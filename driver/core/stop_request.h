// Asks a job to end as a signal does, from any thread: also before it begins, when it is ended at
// once, and after its end, when nothing happens. Nothing happens either after a signal that ends
// it.
#pragma once

#include <csignal>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace hvd::driver {

class StopRequest {
 public:
  void make(int signal_number = SIGTERM) {
    const std::lock_guard lock(mutex_);
    made_ = signal_number;
    if (stop_) stop_(signal_number);
  }
  // By the job. `stop` is called with each request and for an earlier one, under a lock. Null: the
  // job has ended.
  void serve(std::function<void(int signal_number)> stop) {
    const std::lock_guard lock(mutex_);
    stop_ = std::move(stop);
    if (stop_ && made_) stop_(*made_);
  }

 private:
  std::mutex mutex_;
  std::function<void(int)> stop_;  // guarded by mutex_
  std::optional<int> made_;        // guarded by mutex_
};

}  // namespace hvd::driver
