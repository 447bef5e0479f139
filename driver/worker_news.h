// What the observer is told of the beginning and the end of workers: each once, and only what the
// job took for true. Owned by the driver, on its thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "driver/core/observer.h"
#include "driver/job/any_job.h"
#include "driver/worker_output.h"

namespace hvd::driver {

class WorkerNews {
 public:
  // All outlive this.
  WorkerNews(const AnyJob& job, Observer& observer, WorkerOutput& output)
      : job_(job), observer_(observer), output_(output) {}

  // An event that the job has just taken in.
  void tell(const Event& event);
  // Nothing more will come from there.
  void host_gone(HostIndex host);

 private:
  void on(const event::Launched& event);
  void on(const event::Exited& event);
  void ended(std::size_t worker, std::string_view how);

  const AnyJob& job_;
  Observer& observer_;
  WorkerOutput& output_;
  // By worker, as far as any was told of: two bits for each that the job ever had.
  std::vector<bool> started_;
  std::vector<bool> ended_;
};

}  // namespace hvd::driver
