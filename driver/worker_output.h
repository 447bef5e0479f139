// What the workers of a job write, on its way from the agents to the observer: checked against what
// each agent may send, paid for, and the end of standard error kept for reports. Every stream of a
// started worker is closed to the observer exactly once.
//
// Owned by the driver, on its thread; the receipts that it hands to the observer may be used from
// any.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "driver/driver.h"
#include "driver/job/any_job.h"
#include "driver/output_credit.h"
#include "driver/stderr_tail.h"

namespace hvd::driver {

WorkerView view_of(const JobWorker& worker);

class WorkerOutput {
 public:
  // `job` and `observer` outlive this.
  WorkerOutput(const AnyJob& job, Observer& observer, OutputCredit::Send send,
               OutputCredit::Post post);

  // From the agent of `host`; an error if it may not say this.
  Status on_output(HostIndex host, agent_link::Output output);
  Status on_closed(HostIndex host, const agent_link::OutputClosed& closed);
  // Nothing more can come from this worker.
  void close_all(std::size_t worker);

  // See OutputCredit::forgive().
  void forgive() { credit_.forgive(); }

  std::vector<std::string> stderr_tail(Incarnation worker) const;
  // The first of all last lines in which these words stand, from there on; empty: there is none.
  std::string find_in_stderr(std::string_view words) const;

 private:
  struct Streams {
    std::array<bool, 2> closed{};
    StderrTail tail;
  };
  // Index of the worker that the agent of `host` may speak of.
  Result<std::size_t> find(HostIndex host, Incarnation incarnation, agent_link::Stream stream);
  Streams& streams_of(std::size_t worker);
  void close(std::size_t worker, Stream stream);

  const AnyJob& job_;
  Observer& observer_;
  OutputCredit credit_;
  bool lost_some_ = false;
  std::vector<Streams>
      streams_;  // as AnyJob::worker_at() counts them, as far as there was anything
};

}  // namespace hvd::driver
