// What the workers of a job write, on its way from the agents to the observer: checked against what
// each agent may send, paid for, and the end of standard error kept for reports. Every stream of a
// started worker is closed to the observer exactly once.
//
// Owned by the driver, on its thread; the receipts that it hands to the observer may be used from
// any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "driver/core/observer.h"
#include "driver/core/stderr_tail.h"
#include "driver/job/any_job.h"
#include "driver/output_credit.h"

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
  // Of workers that have ended so many tails are kept, the newest, and that of the first failure.
  static constexpr std::size_t kTailsOfTheEnded = 256;

  // Index of the worker that the agent of `host` may speak of.
  Result<std::size_t> find(HostIndex host, Incarnation incarnation, agent_link::Stream stream);
  bool is_closed(std::size_t worker, Stream stream) const;
  void close(std::size_t worker, Stream stream);
  void forget_old_tails();

  const AnyJob& job_;
  Observer& observer_;
  OutputCredit credit_;
  bool lost_some_ = false;
  // Workers as AnyJob::worker_at() counts them. An elastic job may start any number of them, so
  // that all that is kept of one that is over is this byte: a bit for each stream.
  std::vector<std::uint8_t> closed_;
  std::map<std::size_t, StderrTail> tails_;  // of those that wrote anything
  std::deque<std::size_t> ended_;            // of these, in the order of their ends
};

}  // namespace hvd::driver
