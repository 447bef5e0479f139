// What run_job() (driver/driver.h) tells of a job: while it runs through an Observer, and at its
// end as an Outcome.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/world_document.h"
#include "driver/job/preflight.h"

namespace hvd::driver {

enum class Stream { standard_output, standard_error };

// One running worker, for those who look on.
struct WorkerView {
  int rank = 0;  // in the world in force; -1: it is in none yet
  std::string host;
  int slot = 0;
  std::uint64_t incarnation = 0;
  int pid = 0;
};

// Why a job failed: the first worker (or host) that did, and what is known of it.
struct Failure {
  WorkerView worker;  // rank and slot are -1 if it was a host; pid is 0 if it never ran; no host if
                      // it was neither
  std::string cause;  // "was killed by SIGKILL (signal 9)", "exited with code 3", ...
  std::vector<std::string> stderr_tail;  // its last lines, oldest first; at most 20
  std::vector<FailedHost> hosts;  // if hosts could not be made ready: all of those; `worker.host`
                                  // is the first
};

struct Outcome {
  int exit_code = 0;  // for hvdrun: 0, a worker's own code, 128 + signal, or 1 for troubles of ours
  std::optional<Failure> failure;
  std::string reason;  // one sentence: why the job ended
  // What a worker wrote when it found that committed state was lost; empty if none did. It explains
  // whatever else went wrong.
  std::string lost_state;
};

// Called on the driver's thread; none may block.
class Observer {
 public:
  virtual ~Observer() = default;

  // The plan of a static job stands: who will run where. Before any worker is started.
  virtual void on_plan(const WorldDocument& world) = 0;
  // Of a job whose world changes, each world as it takes force, also the first; `why` is what is
  // new in it, empty for the first. From then on the workers have the ranks that stand there.
  virtual void on_world(const WorldDocument& world, std::string_view why) = 0;
  // One line that a person should read ("oversubscribed: ...").
  virtual void on_warning(std::string_view text) = 0;
  // One line for a person who may wonder what takes so long: no trouble, but good to know.
  virtual void on_notice(std::string_view text) = 0;
  // One line for --verbose.
  virtual void on_progress(std::string_view text) = 0;
  virtual void on_started(const WorkerView& worker) = 0;
  // Bytes as the worker wrote them. `consumed` is to be called once, from any thread, when they no
  // longer take memory; until then the worker's output window is smaller by their number.
  virtual void on_output(const WorkerView& worker, Stream stream, std::string bytes,
                         std::function<void()> consumed) = 0;
  // No more output will come from this worker on this stream.
  virtual void on_output_closed(const WorkerView& worker, Stream stream) = 0;
  virtual void on_exited(const WorkerView& worker, std::string_view how) = 0;
};

}  // namespace hvd::driver
