// Reports the start and the end of workers to the observer: each once, and only if the job has
// accepted the event. Owned by the driver, on its thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "driver/core/observer.h"
#include "driver/job/job.h"
#include "driver/output/worker_output.h"

namespace hvd::driver {

class WorkerReporter {
 public:
  // All arguments outlive this.
  WorkerReporter(const Job& job, Observer& observer, WorkerOutput& output)
      : job_(job), observer_(observer), output_(output) {}

  // To be called after the job has handled the event.
  void on_event(const Event& event);
  // No more events will come from this host.
  void host_gone(HostIndex host);

 private:
  void on(const event::Launched& event);
  void on(const event::Exited& event);
  void ended(std::size_t worker, std::string_view how);

  const Job& job_;
  Observer& observer_;
  WorkerOutput& output_;
  // By worker: two bits for each worker that the job ever had.
  std::vector<bool> started_;
  std::vector<bool> ended_;
};

}  // namespace hvd::driver
