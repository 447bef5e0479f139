// The metrics of a job, in the text format of Prometheus. They are told what goes into the job's
// state machine and what comes out of it, like the journal, and read the rest off the job when
// somebody asks. All workers and hosts are summed here, so that the number of series does not grow
// with them. docs/metrics.md describes each metric.
//
// Each group of metrics is a class of its own (state_metrics.h, world_metrics.h, host_metrics.h,
// and worker_metrics.h, with what the workers report).
//
// For one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/protocol/agent_link.h"
#include "driver/job/job.h"
#include "driver/job/job_options.h"
#include "driver/work/work_watch.h"

namespace hvd::driver {

class JobMetrics {
 public:
  JobMetrics(const JobIdentity& identity, const JobStart& start);
  ~JobMetrics();
  JobMetrics(const JobMetrics&) = delete;
  JobMetrics& operator=(const JobMetrics&) = delete;

  // The actions with which Job::step() answered; `job` is as after it. Every step is told.
  void step(const Event& event, const std::vector<Action>& actions, const Job& job, TimePoint now);
  // The reports of the workers, up to now; `job` as after the last step.
  void look_at_work(const WorkWatch& work, const Job& job, TimePoint now);
  void add_output(agent_link::Stream stream, std::size_t bytes);

  // As `GET /metrics` answers it; `job` as after the last step.
  std::string text(const Job& job, TimePoint now);

 private:
  struct Groups;
  std::unique_ptr<Groups> groups_;
};

// The media type of that text.
inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace hvd::driver
