// Passes the workers' output from the agents to the observer: checks that the agent may send it,
// applies flow control, and keeps the last lines of standard error for reports. Every stream of a
// started worker is closed to the observer exactly once.
//
// Owned by the driver, on its thread; the observer may call the functions that confirm consumption
// from any thread.
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
#include "driver/job/job.h"
#include "driver/output/output_credit.h"

namespace hvd::driver {

WorkerView view_of(const JobWorker& worker);

class WorkerOutput {
 public:
  // `job` and `observer` outlive this.
  WorkerOutput(const Job& job, Observer& observer, OutputCredit::Send send,
               OutputCredit::Post post);

  // From the agent of `host`; an error if the agent was not allowed to send it.
  Status on_output(HostIndex host, agent_link::Output output);
  Status on_closed(HostIndex host, const agent_link::OutputClosed& closed);
  // No more output can come from this worker.
  void close_all(std::size_t worker);

  // See OutputCredit::waive().
  void waive() { credit_.waive(); }

  std::vector<std::string> stderr_tail(Incarnation worker) const;
  // The first kept line that contains `text`, from `text` on; empty: there is none.
  std::string find_in_stderr(std::string_view text) const;

 private:
  // The number of tails that are kept of workers that have ended: the newest ones, and always that
  // of the first failure.
  static constexpr std::size_t kTailsOfTheEnded = 256;

  // Index of the worker, if it runs on `host` and its stream is open.
  Result<std::size_t> find(HostIndex host, Incarnation incarnation, agent_link::Stream stream);
  bool is_closed(std::size_t worker, Stream stream) const;
  void close(std::size_t worker, Stream stream);
  void forget_old_tails();

  const Job& job_;
  Observer& observer_;
  OutputCredit credit_;
  bool lost_some_ = false;
  // By index of Job::workers(): a bit for each stream. An elastic job may start any number of
  // workers, so this byte is all that is kept of one that has ended.
  std::vector<std::uint8_t> closed_;
  std::map<std::size_t, StderrTail> tails_;  // of workers with output on standard error
  std::deque<std::size_t> ended_;            // ended workers with a tail, in order of their ends
};

}  // namespace hvd::driver
