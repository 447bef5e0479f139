// What people hear of a running job and of its workers: the workers' output, their starts and ends,
// what the job waits for, what all workers do (SIGUSR1, `hvdrun dump`), and, at the end, why the
// job failed.
//
// For the driver's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/protocol/agent_link.h"
#include "driver/core/timers.h"
#include "driver/job/job.h"
#include "driver/output/activity_report.h"
#include "driver/output/worker_output.h"
#include "driver/output/worker_reporter.h"
#include "driver/run/host_table.h"
#include "driver/run/job_context.h"
#include "driver/work/work_watch.h"

namespace hvd::driver {

class JobReport {
 public:
  // All references outlive this.
  JobReport(const JobContext& context, const Job& job, HostTable& hosts, const WorkWatch& work);
  JobReport(const JobReport&) = delete;
  JobReport& operator=(const JobReport&) = delete;

  // To be called after the job has handled the event, and before its consequences.
  void on_event(const Event& event);
  // A world has taken force: what workers said of the one before tells nothing of it.
  void new_world() { last_activities_.clear(); }

  WorkerOutput& output() { return output_; }
  ActivityReport& activity() { return activity_; }
  // What a worker does now, or what it did when its world of `generation` failed.
  void on_activity(HostIndex host, agent_link::WorkerActivity activity, std::uint64_t generation);

  // The failure of a job that ends, and the last activities of its workers as whole lines.
  Failure failure(const JobFailure& first) const;
  std::string last_activities() const { return last_activities_.text(); }
  // The message of a worker that has found committed state lost; empty: none has.
  std::string lost_state() const;
  // The workers of a host whose end was not confirmed have not been reported yet.
  void end();

 private:
  ActivityReport::Callbacks activity_callbacks();
  std::map<std::uint64_t, ActivityRow> live_workers() const;
  void return_credit(const agent_link::Credit& credit);
  void report_waiting();

  const JobContext& context_;
  const Job& job_;
  HostTable& hosts_;
  const WorkWatch& work_;
  WorkerOutput output_;
  WorkerReporter reporter_;
  ActivityReport activity_;
  LastActivities last_activities_;
  ProgressTimer progress_timer_;
};

// The log of hosts while they are made ready (--log-level INFO). Pure.

// "host a: authenticate" for an event that `job` has handled; empty if it tells nothing of that.
std::string host_log_text(const Event& event, const Job& job);

}  // namespace hvd::driver
