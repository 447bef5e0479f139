// The agent itself: serves the driver's link, owns the workers, and makes sure that none of their
// processes outlives it. One thread, one object, run by main().
//
//     greeting --Hello--> claiming --no older agent is left--> serving
//                            `--an older agent takes the link over--> relieved --its end--> over
//     serving --Shutdown, SIGTERM(*)--> ending --nothing left, Bye--> over
//     serving --end of the link(**)--> holding --Hello of a later driver--> serving
//     each --end of file or invalid data on the link, silence, a newer agent--> lost --> over
//
// (**) In a job whose agents hold their workers. In `claiming` an older agent of the job ends its
// workers on this host; requests wait. In `ending` the link is served until every worker is over
// and all output was sent; in `lost` there is no driver to serve, so the agent kills its workers
// and exits. (*) In an elastic job, the second SIGTERM: the first is reported to the driver, and
// the agent serves on until Shutdown.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
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
#include "cmd/hvd-agent/host_claim.h"
#include "cmd/hvd-agent/host_network.h"
#include "cmd/hvd-agent/lease.h"
#include "cmd/hvd-agent/link_handover.h"
#include "cmd/hvd-agent/notice_command.h"
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
};

class Supervisor {
 public:
  Supervisor(std::unique_ptr<EventLoop> loop, SharedLease board, SupervisorOptions options);
  // Returns the exit code of the agent when nothing of any worker is left.
  int run();

 private:
  enum class Phase { greeting, claiming, relieved, serving, holding, ending, lost, over };
  using milliseconds = std::chrono::milliseconds;
  // How long processes that SIGKILL does not end (they wait for a dead file system, or belong to
  // another user) delay the agent's exit.
  static constexpr std::chrono::seconds kUnkillableTimeout{10};

  Status watch_all();
  Status watch_link();
  void turn();
  void obey_lease();
  // Time in which this process was stopped does not count for any deadline.
  void extend_deadlines(TimePoint now);
  bool is_same_notice(int number, TimePoint now);
  // Frames of the driver that can be handled now.
  bool has_requests() const {
    return !queued_frames_.empty() && phase_ != Phase::claiming && phase_ != Phase::relieved;
  }
  TimePoint deadline() const;
  void on_link_readable();
  void on_signals();
  void on_notice(std::optional<milliseconds> left);
  void on_child_ended();

  // Handles what the driver has sent, in order, for as long as the link and the workers can wait.
  Status handle_queued_frames();
  Status handle(const Frame& frame);
  Status on(const agent_link::Hello& hello);
  // The answer to Hello.
  void greet(const agent_link::Hello& hello);
  void begin_lease(const agent_link::Hello& hello, pid_t local_driver);
  Status on(agent_link::Program program);
  Status on(agent_link::Launch launch);
  Status on(const agent_link::Signal& signal);
  Status on(const agent_link::Stop& stop);
  Status on(const agent_link::Kill& kill);
  Status on(const agent_link::Credit& credit);
  Status on(agent_link::WorldKeys keys);
  Status on(agent_link::World world);
  Status on(const agent_link::Pause& pause);
  Status on(const agent_link::AskActivity& question);
  Status on(const agent_link::Heartbeat& heartbeat);
  Status on(const agent_link::Shutdown& shutdown);
  Status on(agent_link::Check check);
  Status on(agent_link::Probe probe);
  Status on(const agent_link::Describe& describe);
  Status on(agent_link::Rendezvous rendezvous);
  template <typename Message>
  Status decode_and_handle(const Frame& frame);

  // Tells the driver what the workers have done since it was told last.
  void report_work();
  // One worker or all of them; empty if the worker is already over.
  std::vector<Worker*> select(agent_link::Incarnation incarnation);
  void problem(std::string message);
  void fail_link(const Status& why);
  void lose_link();

  // ---- one driver after the other ----

  // Whether this link has ended so that a later driver may come.
  bool may_hold(const Status& why) const;
  void hold(const Status& why);
  void give_link_up(const Status& why);
  // `hvdrun agent`, which would join again, has ended.
  bool is_abandoned() const;
  void drop_link();
  // A messenger has passed the link of a later driver on; its Hello is the first that is read.
  void take_link(HandedLink link);
  Status resume(const agent_link::Hello& hello);
  // The messenger was killed, as this agent is to be.
  void on_messenger_gone();
  // Passes the link on to an older agent that holds workers. False: there is none.
  bool relieve(const agent_link::Hello& hello);
  void on_reliever();
  void pass_on(int signal) const;
  void on_commit_mark(std::string commit);
  void on_superseded();
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
  agent_link::WorldKeys world_keys_;  // of the World that follows
  Lease lease_;
  OrphanTimer orphan_timer_;
  NoticeCommand notice_command_;
  Checker checker_;
  Prober prober_;
  ProbeListener probe_listener_;
  HostClaim claim_;
  HandoverListener handover_;
  UniqueFd reliever_;  // the older agent that serves the link in place of this one
  Watch reliever_watch_;
  std::map<agent_link::Incarnation, std::unique_ptr<Worker>> workers_;
  std::set<agent_link::Incarnation> changed_;
  // Children from before main(), of a shell that has exec'ed the agent: not ours to kill.
  std::vector<pid_t> inherited_children_;
  Phase phase_ = Phase::greeting;
  int exit_code_ = 0;
  TimePoint give_up_at_ = kNever;
  TimePoint look_for_strays_at_ = kNever;
  bool sent_bye_ = false;
  agent_link::Ready ready_;  // as it was said first
  std::uint64_t epoch_ = 0;  // of the driver that is obeyed
  milliseconds hold_{};      // zero: the workers end with the link
  pid_t joiner_ = 0;         // the `hvdrun agent` that has started this process; 0: none has
  pid_t next_driver_ = 0;    // the process that has sent the link's messenger
  std::uint64_t output_in_flight_ = 0;          // when the link has ended: bytes that may be lost
  std::set<agent_link::Incarnation> launched_;  // ever, if workers are held
  std::string commit_mark_;                     // made without a driver; empty: none was
  bool link_reader_gone_ = false;
  TimePoint last_turn_;
  bool saw_lease_end_ = false;
  bool paused_ = false;
  // Why the lease has run out, if not for a silent link; until it is renewed.
  bool was_paused_ = false;
  bool driver_was_stopped_ = false;
  bool elastic_ = false;
  std::string host_;  // as the job calls it
  Duration grace_{};  // of the workers, where this process is told to end
  bool announced_leaving_ = false;
  std::optional<TimePoint> last_sigterm_;
};

// This machine's own name.
std::string host_name();

}  // namespace hvd::agent
