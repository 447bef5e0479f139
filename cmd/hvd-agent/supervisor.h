// The agent itself: serves the driver's link, keeps the workers, and sees to it that nothing of
// them outlives it. One thread, one object, run by main().
//
//     greeting --Hello--> serving --Shutdown, SIGTERM(*)--> ending --nothing left, Bye--> over
//         `------------- end of file or rubbish on the link, silence --------> lost ----'
//
// `ending` goes on serving the link until every worker is over and all its output was sent; `lost`
// has nobody to serve, kills and leaves. (*) In an elastic job the second one: the first is told to
// the driver, and all goes on until that says Shutdown.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <vector>

#include "base/clock.h"
#include "base/frame.h"
#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "cmd/hvd-agent/checker.h"
#include "cmd/hvd-agent/driver_link.h"
#include "cmd/hvd-agent/event_loop.h"
#include "cmd/hvd-agent/host_network.h"
#include "cmd/hvd-agent/lease.h"
#include "cmd/hvd-agent/orphan_timer.h"
#include "cmd/hvd-agent/output_stream.h"
#include "cmd/hvd-agent/prober.h"
#include "cmd/hvd-agent/worker.h"

namespace hvd::agent {

struct SupervisorOptions {
  UniqueFd link_in;   // both non-blocking
  UniqueFd link_out;  // may be the same socket
  UniqueFd signals;   // a signalfd of SIGCHLD, SIGTERM, SIGINT and SIGUSR1
  rlimit open_files_of_workers{};
  bool no_hello_timeout = false;  // waits for Hello as long as the link stands
};

class Supervisor {
 public:
  Supervisor(std::unique_ptr<EventLoop> loop, SharedLease board, SupervisorOptions options);
  // Returns the exit code of the agent when nothing of any worker is left.
  int run();

 private:
  enum class Phase { greeting, serving, ending, lost, over };
  // How long processes that do not die of SIGKILL (waiting for a dead file system, or somebody
  // else's) hold up the agent's end.
  static constexpr std::chrono::seconds kUnkillableTimeout{10};

  Status watch_all();
  void turn();
  void obey_lease();
  // Whatever waits for a moment waits for time in which this process ran.
  void extend_deadlines(TimePoint now);
  TimePoint deadline() const;
  void on_link_readable();
  void on_signals();
  void on_child_ended();

  // What the driver has said and was not done yet, in order, for so long as others can wait.
  Status handle_queued_frames();
  Status handle(const Frame& frame);
  Status on(const agent_link::Hello& hello);
  Status on(agent_link::Program program);
  Status on(agent_link::Launch launch);
  Status on(const agent_link::Signal& signal);
  Status on(const agent_link::Stop& stop);
  Status on(const agent_link::Kill& kill);
  Status on(const agent_link::Credit& credit);
  Status on(agent_link::World world);
  Status on(const agent_link::Pause& pause);
  Status on(const agent_link::AskActivity& question);
  Status on(const agent_link::Heartbeat& heartbeat);
  Status on(const agent_link::Shutdown& shutdown);
  Status on(agent_link::Check check);
  Status on(agent_link::Probe probe);
  Status on(const agent_link::Describe& describe);
  template <typename Message>
  Status decode_and_handle(const Frame& frame);

  // One worker, all of them, or none if it is already over.
  std::vector<Worker*> select(agent_link::Incarnation incarnation);
  void problem(std::string message);
  void fail_link(const Status& why);
  void lose_link();
  void end(int exit_code, TimePoint give_up_at);
  void settle_workers();
  void kill_strays();
  void finish_if_done();

  std::unique_ptr<EventLoop> loop_;
  SharedLease shared_lease_;
  DriverLink link_;
  UniqueFd signals_;
  Watch link_in_watch_;
  Watch link_out_watch_;
  Watch signals_watch_;
  OutputPump pump_;
  OutOfMemoryKills out_of_memory_;
  WorkerContext context_;
  std::deque<Frame> queued_frames_;
  agent_link::Program program_;
  Lease lease_;
  OrphanTimer orphan_timer_;
  Checker checker_;
  Prober prober_;
  ProbeListener probe_listener_;
  std::map<agent_link::Incarnation, std::unique_ptr<Worker>> workers_;
  std::set<agent_link::Incarnation> changed_;
  std::vector<pid_t> children_of_others_;  // were there before us: a shell's that exec'ed us
  Phase phase_ = Phase::greeting;
  int exit_code_ = 0;
  TimePoint give_up_at_ = kNever;
  TimePoint look_for_strays_at_ = kNever;
  bool said_bye_ = false;
  bool nobody_reads_ = false;
  TimePoint last_turn_;
  bool saw_lease_end_ = false;
  bool paused_ = false;
  // Why the lease has run out, if it is not the way to the driver; until it is renewed.
  bool was_paused_ = false;
  bool driver_was_stopped_ = false;
  bool elastic_ = false;
  bool said_that_host_leaves_ = false;
};

// What this machine calls itself.
std::string host_name();
// "0.8 s"
std::string seconds_of(std::chrono::nanoseconds duration);

}  // namespace hvd::agent
