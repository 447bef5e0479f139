// The reports of run_job() (driver/driver.h) on a job: to an Observer while it runs, and as an
// Outcome at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/world_document.h"
#include "driver/job/job_account.h"
#include "driver/job/preflight.h"

namespace hvd::driver {

enum class Stream { standard_output, standard_error };

// One running worker.
struct WorkerView {
  int rank = 0;  // in the world in force; -1: it is not in that world
  std::string host;
  int slot = 0;
  std::uint64_t incarnation = 0;
  int pid = 0;
  int local_rank = -1;  // as `rank`, among the workers of its host
};

// The first failure of a worker or host, which is the reason why the job failed.
struct Failure {
  // Rank and slot are -1 if a host failed; pid is 0 if the worker never ran; host is empty if
  // neither a worker nor a host failed.
  WorkerView worker;
  std::string cause;  // "was killed by SIGKILL (signal 9)", "exited with code 3", ...
  std::vector<std::string> stderr_tail;  // its last lines, oldest first; at most 20
  // All hosts that could not be made ready, if that is the reason; `worker.host` is the first.
  std::vector<FailedHost> hosts;
};

struct Outcome {
  int exit_code = 0;  // for hvdrun: 0, a worker's own code, 128 + signal, or 1 for its own errors
  std::optional<Failure> failure;
  std::string reason;      // one sentence: why the job ended
  bool suspended = false;  // an elastic job that ended at a commit, and is to be taken up again
  // The message of a worker that has found committed state lost; empty: there is none. It explains
  // all other failures.
  std::string lost_state;
  // The last activities of the workers, and where the time of the last recovery went, in whole
  // lines: of a job that has failed, if its workers have said anything.
  std::string last_activities;
  std::optional<JobSummary> summary;  // nothing: the job did not begin
  std::string journal;                // the file; empty: none was written
};

// A wait of the job.
struct Waiting {
  enum class For { start, init, state, end } what = For::start;
  // "host b to be connected (3 of 4 hosts are ready)"
  std::function<std::string()> text;
  // The job does no work meanwhile, and nobody has asked for its end. Otherwise the wait is a
  // detail for --verbose.
  bool matters = true;
};

// All functions are called on the driver's thread, and none but on_pause() may block.
class Observer {
 public:
  virtual ~Observer() = default;

  // The plan of a static job is complete: the host and slot of each rank. Called before any worker
  // is started.
  virtual void on_plan(const WorldDocument& world) = 0;
  // A world of an elastic job has taken force, also the first; `why` is the change from the world
  // before, empty for the first. From then on the workers have its ranks.
  virtual void on_world(const WorldDocument& world, std::string_view why) = 0;
  // One line that the user should read ("oversubscribed: ...").
  virtual void on_warning(std::string_view text) = 0;
  // One line of information.
  virtual void on_notice(std::string_view text) = 0;
  // Called about four times a second while the job waits. The text is valid during the call.
  virtual void on_waiting(const Waiting& waiting) = 0;
  // The job waits no longer.
  virtual void on_waiting_over() = 0;
  // One line for --verbose.
  virtual void on_progress(std::string_view text) = 0;
  virtual void on_started(const WorkerView& worker) = 0;
  // Bytes as the worker wrote them. `consumed` must be called once, from any thread, when they no
  // longer occupy memory; until then the worker's output window is smaller by their number.
  virtual void on_output(const WorkerView& worker, Stream stream, std::string bytes,
                         std::function<void()> consumed) = 0;
  // No more output will come from this worker on this stream.
  virtual void on_output_closed(const WorkerView& worker, Stream stream) = 0;
  virtual void on_exited(const WorkerView& worker, std::string_view how) = 0;
  // This process is about to stop, as by Ctrl-Z: its other threads do nothing until it goes on.
  // Waits a moment for them to show what was reported before.
  virtual void on_pause() = 0;
};

}  // namespace hvd::driver
