// Runs one job from a JobSpec to its end: finds the hosts, starts agents on them (or waits for
// agents to join), runs the rendezvous service, feeds events to the job's state machine
// (driver/job/job.h) and performs its actions. All of it happens on the thread that calls
// run_job(), except SSH sessions and name lookups, which have threads of their own. While it runs
// it handles the signals of driver/core/signals.h (SIGHUP and SIGTSTP not if they were ignored, as
// with nohup); afterwards they have their default effect. While it runs, orphans of its descendants
// become children of this process, and end with the job.
#pragma once

#include <csignal>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "driver/core/job_spec.h"
#include "driver/core/observer.h"

namespace hvd::driver {

// Asks a job to end as a signal does, from any thread: also before it begins, when it is ended at
// once, and after its end, when nothing happens. Nothing happens either after a signal that ends
// it.
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

// Blocks until the job has ended and no process of it is left. `stop`: may end it; null: nothing
// does but signals.
Outcome run_job(const JobSpec& spec, Observer& observer, StopRequest* stop = nullptr);

}  // namespace hvd::driver
