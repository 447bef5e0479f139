// One worker in the agent: its reaper (reaper.h), its two output streams and its descriptor, from
// Launch until all its processes are gone. Owned by the supervisor, on its only thread.
//
//     launching --launched--> running --exited--> exited     and, at any time, reaper gone
//         `--launch failed--> failed
//
// Exited is sent to the driver after all output that the worker itself had written. The kernel may
// then still be freeing the memory of a worker that has failed. A worker is over when Exited was
// sent, both streams have closed and the reaper, which ends with the last descendant, is gone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/machine/cgroup.h"
#include "base/port_range.h"
#include "base/protocol/agent_link.h"
#include "base/protocol/state_memory.h"
#include "base/shared_bytes.h"
#include "cmd/hvd-agent/driver_link.h"
#include "cmd/hvd-agent/event_loop.h"
#include "cmd/hvd-agent/output_stream.h"
#include "cmd/hvd-agent/reaper.h"
#include "cmd/hvd-agent/worker_channel.h"
#include "cmd/hvd-agent/worker_heartbeat.h"

namespace hvd::agent {

// Kills for want of memory in the control groups of workers: the agent's own one, or those that
// they have moved to.
class OutOfMemoryKills {
 public:
  // `membership`: the worker's, as /proc/PID/cgroup had it when it was dead. The limit of the
  // control group in bytes (0: no limit), if there was another kill in it since the last take().
  // Each kill explains the end of one worker. A kill in another group explains none, though it may
  // be below the agent's.
  std::optional<std::uint64_t> take(const std::string& membership);

 private:
  std::map<std::string, MemoryEvents> taken_ = own_memory_events();
};

// The newest world of a kind, and its key for each member on this host.
struct HostWorld {
  agent_link::World world;
  std::vector<agent_link::WorkerKey> keys;
  // The worker_link::World for this worker.
  SharedBytes frame_for(agent_link::Incarnation incarnation) const;
};

// The parts of the agent that workers use; all of them outlive the workers.
struct WorkerContext {
  EventLoop& loop;
  DriverLink& link;
  OutputPump& pump;
  rlimit open_files;  // for the worker's own process
  const SharedLease& lease;
  OutOfMemoryKills& out_of_memory;
  bool outlives_driver = false;                   // workers are held when hvdrun has died
  Duration silence{};                             // of a worker before it is killed; zero: never
  std::optional<PortRange> ports = std::nullopt;  // of the job's listeners; nothing: any
  // The newest effective world; a new worker gets it right after its Welcome.
  std::optional<HostWorld> world = {};
  // Workers keep the state of the job in memory that the agent holds; that of those that have ended
  // is for the next ones.
  bool keeps_state = false;
  std::vector<StateMemory> free_state_memory = {};
  // That of a driver that has come to another place than the one before; port 0: none has.
  SocketAddress rendezvous = {};
  // A worker has committed while there was no hvdrun.
  std::function<void(std::string commit)> on_commit_mark = {};
};

class Worker {
 public:
  // `changed` is called whenever settle() may have something to do; it must not destroy the worker.
  Worker(WorkerContext& context, agent_link::Incarnation incarnation, std::string name,
         std::function<void()> changed);

  // Starts it; the driver hears Launched or LaunchFailed. `predecessor` is a pidfd of a process
  // that is to end before.
  void start(agent_link::Launch launch, UniqueFd predecessor);
  void signal(int number);
  // Announces, asks what the worker does, signals when it has answered or a moment is over, and
  // kills when `grace` is over.
  void stop(const std::string& reason, Duration grace, TimePoint now);
  void kill();
  void world(const HostWorld& world);
  void credit(agent_link::Stream stream, std::uint64_t bytes);
  // The link to hvdrun is cut, or there is one again. Returns the bytes of output that were on
  // their way.
  std::uint64_t renew_output();
  // So much was kept in the meantime, and goes out now.
  void use_window(agent_link::Stream stream, std::uint64_t bytes);
  // Says so to the worker.
  void tell_driver_gone(bool gone);

  // To be called when the lease was renewed after the reaper may have frozen the worker, or when
  // the job is paused.
  void check_lease() { order(ReaperOrder::Kind::check_lease); }
  // Asks the worker for its activity and sends it to the driver: as soon as the worker has
  // answered, at the deadline, or at once if the worker cannot answer.
  void ask_activity(std::uint32_t id, TimePoint deadline);

  // The newest report on its work, if there is one that was not taken.
  std::optional<WorkReading> take_new_work() { return std::exchange(new_work_, std::nullopt); }

  // The lease has run out, so that the worker is frozen and cannot answer pings.
  void excuse(TimePoint now);
  // Continues a reaper that was stopped (SIGSTOP), so that it takes orders.
  void wake_reaper() const;

  // When on_time() must be called next.
  TimePoint deadline() const {
    return std::min({kill_at_, sigterm_at_, heartbeat_.deadline(), answer_by_});
  }
  void on_time(TimePoint now);
  // The agent was stopped for this long; deadlines are extended by as much.
  void extend_deadline(Duration stopped) {
    if (kill_at_ != kNever) kill_at_ += stopped;
    if (sigterm_at_ != kNever) sigterm_at_ += stopped;
  }

  // The agent itself has reaped the worker, because its reaper was killed.
  void reaped_by_agent(int wait_status);
  // The reaper was waited for, so that the kernel may reuse its pid.
  void reaper_waited_for() { reaper_pid_ = 0; }
  // Sends what is in the pipes now, and waits for no further output.
  void end_output();
  // Reports what has become final; true when the worker is over.
  bool settle();

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  // Another worker takes the place of this one. If it has exited, what it has left is killed, at
  // the end of the grace if there is one, and the result is a pidfd of its reaper, which ends with
  // the last of that. None: there is nothing to wait for.
  UniqueFd clear_place();
  pid_t reaper_pid() const { return reaper_pid_; }
  bool reaper_gone() const { return !reaper_; }
  // The reaper was killed: the agent has to kill its descendants.
  bool reaper_lost() const { return reaper_gone() && state_ == State::running; }

 private:
  enum class State { launching, running, exited, failed };

  Status try_start(agent_link::Launch launch, UniqueFd predecessor);
  void launch_failed(int error_number, const std::string& message);
  void on_reaper_events();
  void on_report(const ReaperReport& report);
  void launched(pid_t pid);
  void exited(int wait_status, const std::string& control_groups);
  Status take_state_memory();
  void return_state_memory();
  std::string kept_commit() const;
  void order(ReaperOrder::Kind kind, int signal_number = 0);
  void problem(std::string_view what);
  // It can, unless its program hangs.
  bool can_answer() const;
  void on_activity(worker_link::Activity activity);
  // The answer to question_.
  void tell_activity(worker_link::Activity activity, bool answered);
  void send_activity(worker_link::Activity activity, bool answered);
  void end_last_words();

  WorkerContext& context_;
  agent_link::Incarnation incarnation_;
  std::string name_;  // "host#slot"
  std::function<void()> changed_;
  State state_ = State::launching;
  pid_t pid_ = 0;
  pid_t reaper_pid_ = 0;
  UniqueFd reaper_;
  Watch reaper_watch_;
  OutputStream standard_output_;
  OutputStream standard_error_;
  WorkerChannel channel_;
  std::optional<WorkReading> new_work_;
  std::optional<agent_link::Exited> unsaid_exit_;
  std::optional<StateMemory> state_memory_;
  bool was_killed_by_agent_ = false;
  bool has_unkillable_process_ = false;
  TimePoint kill_at_ = kNever;
  TimePoint sigterm_at_ = kNever;  // of a worker that is asked before it is stopped
  WorkerHeartbeat heartbeat_;
  // The request for its activity that the worker has not answered yet.
  std::optional<std::uint32_t> question_;
  TimePoint answer_by_ = kNever;
};

}  // namespace hvd::agent
