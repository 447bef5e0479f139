#include "cmd/hvd-agent/reaper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <poll.h>
#include <set>
#include <string>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "base/machine/cgroup.h"
#include "base/machine/life_lock.h"
#include "base/machine/proc.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"
#include "cmd/hvd-agent/death_watch.h"
#include "cmd/hvd-agent/link_handover.h"
#include "cmd/hvd-agent/orphan_timer.h"
#include "cmd/hvd-agent/process_tree.h"

namespace hvd::agent {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstKillPause{1};
constexpr milliseconds kLongestKillPause{100};
constexpr std::chrono::seconds kUnkillableAfter{5};
constexpr milliseconds kLookAtDeathEvery{1};
constexpr milliseconds kLookAtDeathFor{50};
constexpr std::chrono::seconds kPredecessorTimeout{10};
// Frozen processes are stopped again now and then, since another process may send SIGCONT. Those
// that cannot go on at once are looked at again.
constexpr milliseconds kFirstPassPause{1};
constexpr milliseconds kLongestPassPause{250};

class ReaperProcess {
 public:
  ReaperProcess(int agent, const SharedLease& lease)
      : agent_(agent), lease_(lease), orphan_timer_(lease.orphan_timeout(), Clock::now()) {}

  void run(WorkerStart start) {
    ::prctl(PR_SET_NAME, worker_link::kReaperName);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    signals_ = UniqueFd(::signalfd(-1, &child_ended, SFD_CLOEXEC | SFD_NONBLOCK));
    lease_timer_ = UniqueFd(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!signals_ || !lease_timer_) {
      return report_launch_failed(errno, Status::from_errno("watch over it", errno).message());
    }

    if (!has_place(start.predecessor)) return;
    auto life_lock = LifeLock::make();
    if (life_lock.ok()) start.life_lock = life_lock->duplicate();
    auto worker = start_worker(start);
    start = {};  // closes the worker's ends of pipes and socket here
    if (!worker.ok()) return report_launch_failed(EAGAIN, worker.status().message());
    worker_ = worker->pid;
    if (life_lock.ok()) {
      death_watch_.emplace(*std::move(life_lock));
      if (!death_watch_->start().ok()) death_watch_.reset();
    }
    launch_error_pipe_ = std::move(worker->error_pipe);
    while (!launch_failed_ && (reap() || !exit_reported_)) {
      obey_lease();
      serve();
    }
  }

 private:
  void send(const ReaperReport& report) const {
    // The reaper may block while the agent's queue is full.
    while (::send(agent_, &report, sizeof(report), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }

  void report_launch_failed(int error_number, const std::string& message) {
    ReaperReport report;
    report.kind = ReaperReport::Kind::launch_failed;
    report.error_number = error_number;
    std::memcpy(report.message, message.data(),
                std::min(message.size(), sizeof(report.message) - 1));
    send(report);
  }

  // Processes that the former worker has left may hold devices and ports that the new worker needs.
  // False: no worker is to be started.
  bool has_place(const UniqueFd& predecessor) {
    if (!predecessor) return true;
    const TimePoint deadline = Clock::now() + kPredecessorTimeout;
    switch (wait_for_place(predecessor.get(), agent_, deadline, early_signals_)) {
      case PlaceWait::free:
      case PlaceWait::overdue:
        return true;
      case PlaceWait::stopped:
        report_launch_failed(ECANCELED, "it was stopped before the one before it was gone");
        return false;
      case PlaceWait::agent_gone:
        return false;
    }
    return false;
  }

  void serve() {
    set_lease_timer();
    std::array<pollfd, 5> polled{
        pollfd{agent_, POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0},
        pollfd{launch_error_pipe_ ? launch_error_pipe_.get() : -1, POLLIN, 0},
        pollfd{lease_timer_.get(), POLLIN, 0},
        pollfd{death_watch_ ? death_watch_->descriptor() : -1, POLLIN, 0}};
    const TimePoint deadline =
        std::min(next_look_at_death_,
                 killing_ ? next_kill_ : std::min(next_pass_, orphan_timer_.next_look()));
    ::poll(polled.data(), polled.size(), milliseconds_until(deadline, Clock::now()));
    signalfd_siginfo ignored{};
    while (::read(signals_.get(), &ignored, sizeof(ignored)) > 0) {
    }
    if (polled[2].revents != 0) hear_of_launch();
    if (polled[4].revents != 0) {
      death_watch_->take();
      next_look_at_death_ = Clock::now();
      look_at_death_until_ = next_look_at_death_ + kLookAtDeathFor;
    }
    if (Clock::now() >= next_look_at_death_) look_at_death();
    if (polled[0].revents != 0) take_order();
    if (killing_ && Clock::now() >= next_kill_) kill_once();
  }

  // The worker has given up its lock, so it is most likely dying, though its first thread may not
  // have got there yet. It may also have executed another program, and live.
  void look_at_death() {
    next_look_at_death_ = kNever;
    if (exit_reported_ || launch_error_pipe_) return;
    if (const auto status = failure_of_dying(worker_)) {
      note_groups_of_dead();
      return report_exit(*status);
    }
    const TimePoint now = Clock::now();
    if (now < look_at_death_until_) next_look_at_death_ = now + kLookAtDeathEvery;
  }

  // The timer expires at the end of the lease as known now; after a renewal it is set again.
  void set_lease_timer() {
    const LeaseTime next = killing_ || frozen_ ? kNoLeaseEnd : lease_.runs_until();
    if (next == timer_set_to_) return;
    timer_set_to_ = next;
    itimerspec when{};  // all zero: never
    if (next != kNoLeaseEnd) {
      const auto since_start = next.time_since_epoch();
      const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since_start);
      when.it_value.tv_sec = whole.count();
      when.it_value.tv_nsec = (since_start - whole).count();
    }
    // Setting the timer also clears its expiration.
    ::timerfd_settime(lease_timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  }

  // True if the driver was silent for too long.
  bool is_orphaned() {
    const TimePoint now = Clock::now();
    if (const auto heard = lease_.times_heard(); heard != times_heard_) {
      times_heard_ = heard;
      orphan_timer_.heard(now);
    }
    return now >= orphan_timer_.next_look() &&
           orphan_timer_.look(now, is_stopped(lease_.local_driver()));
  }

  bool may_run(LeaseTime now) const { return !lease_.paused() && now < lease_.runs_until(); }

  void obey_lease() {
    if (killing_) return;
    if (is_orphaned()) return begin_to_kill();
    const LeaseTime now = LeaseClock::now();
    if (!frozen_ && !may_run(now)) {
      lease_.note_frozen();
      frozen_ = !may_run(now);  // it may have been renewed before that was noted
      if (frozen_) begin_to_freeze_or_thaw();
    } else if (frozen_ && may_run(now)) {
      // Orders that came before the renewal are there by now. A process that one of them stops does
      // not run.
      while (take_order()) {
      }
      if (killing_) return;
      frozen_ = false;
      begin_to_freeze_or_thaw();
    }
    if (Clock::now() >= next_pass_) freeze_or_thaw();
  }

  void begin_to_freeze_or_thaw() {
    pass_pause_ = kFirstPassPause;
    next_pass_ = Clock::now();
  }

  void freeze_or_thaw() {
    if (frozen_) {
      freeze_descendants(
          ::getpid(), [this] { reap(); }, stopped_by_us_);
    } else {
      thaw_descendants(::getpid(), stopped_by_us_);
    }
    const bool is_done = !frozen_ && stopped_by_us_.empty();
    next_pass_ = is_done ? kNever : Clock::now() + pass_pause_;
    pass_pause_ = std::min(2 * pass_pause_, kLongestPassPause);
  }

  void hear_of_launch() {
    std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::read(launch_error_pipe_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) return;
    launch_error_pipe_.reset();
    if (got > 0) {
      const auto why = decode_launch_error({buffer.data(), static_cast<std::size_t>(got)});
      report_launch_failed(why.error_number, why.message);
      launch_failed_ = true;
      ::waitpid(worker_, nullptr, 0);
      return;
    }
    groups_ = groups_now();
    ReaperReport report;
    report.kind = ReaperReport::Kind::launched;
    report.pid = worker_;
    send(report);
    if (early_exit_) return report_exit(*early_exit_);
    for (const int number : early_signals_) signal_group(number);
  }

  // False if there was none.
  bool take_order() {
    if (agent_ < 0) return false;
    ReaperOrder order;
    const ssize_t got = ::recv(agent_, &order, sizeof(order), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    if (got <= 0) {
      agent_ = -1;  // poll() passes over it from now on
      order.kind = ReaperOrder::Kind::kill;
    }
    switch (order.kind) {
      case ReaperOrder::Kind::kill:
        begin_to_kill();
        break;
      case ReaperOrder::Kind::check_lease:
        break;  // the next turn does
      case ReaperOrder::Kind::signal:
        if (launch_error_pipe_) {
          early_signals_.push_back(order.signal_number);
        } else {
          signal_group(order.signal_number);
        }
    }
    return true;
  }

  void begin_to_kill() {
    if (!killing_) unkillable_at_ = Clock::now() + kUnkillableAfter;
    killing_ = true;
    kill_pause_ = kFirstKillPause;
    next_kill_ = Clock::now();
  }

  // A signal of the user's. It would end those of the worker's processes that have no handler for
  // it, such as a shell around the program. Of the others, what descends from one that gets it gets
  // none: it has its handler only because it was forked.
  void signal_handlers(int number) {
    std::set<pid_t> served;
    for (const auto& process : descendants_of(::getpid())) {  // parents come first
      const bool has_parent_served = served.count(process.parent) != 0;
      if (!has_parent_served && !handles(process.pid, number)) continue;
      served.insert(process.pid);
      if (!has_parent_served) signal_descendant(process, ::getpid(), number);
    }
  }

  void signal_group(int number) {
    if (number == SIGUSR1 || number == SIGUSR2) return signal_handlers(number);
    // SIGCONT and SIGSTOP to frozen processes only change which of them are thawed later. Every
    // other signal but SIGKILL stays pending in the frozen processes.
    if (next_pass_ != kNever && (number == SIGCONT || number == SIGSTOP)) {
      for (const auto& process : descendants_of(::getpid())) {
        if (::getpgid(process.pid) != worker_) continue;
        if (number == SIGCONT) stopped_by_us_.insert(process.pid);
        if (number == SIGSTOP) stopped_by_us_.erase(process.pid);
      }
      if (frozen_ || number == SIGCONT) return;  // else some go on already
    }
    if (!exit_reported_) {
      ::kill(-worker_, number);  // not reaped yet, so the number is still the worker's
      return;
    }
    for (const auto& process : descendants_of(::getpid())) {
      if (::getpgid(process.pid) == worker_) signal_descendant(process, ::getpid(), number);
    }
  }

  void kill_once() {
    const auto pass = kill_descendants(::getpid(), [this] { reap(); });
    next_kill_ = Clock::now() + kill_pause_;
    kill_pause_ = std::min(2 * kill_pause_, kLongestKillPause);
    if (Clock::now() < unkillable_at_) return;
    unkillable_at_ = kNever;
    for (const pid_t pid : pass.found) {
      if (pid == worker_ && exit_reported_) continue;  // it is dead, and its memory is being freed
      ReaperReport report;
      report.kind = ReaperReport::Kind::unkillable;
      report.pid = pid;
      const auto& forbidden = pass.forbidden;
      if (std::find(forbidden.begin(), forbidden.end(), pid) != forbidden.end()) {
        report.error_number = EPERM;
      }
      send(report);
    }
  }

  // Waits for all children that have ended; false when no child is left.
  bool reap() {
    for (;;) {
      if (!exit_reported_ && is_dead_worker_there()) note_groups_of_dead();
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG | __WALL);
      if (pid == 0) return true;
      if (pid < 0) return errno != ECHILD;
      if (pid != worker_ || exit_reported_) continue;
      if (launch_error_pipe_) {
        early_exit_ = status;  // whether it was launched at all is not known yet
        hear_of_launch();
      } else {
        report_exit(status);
      }
    }
  }

  std::string groups_now() const { return read_proc_file(cat("/proc/", worker_, "/cgroup")); }
  // When it has been waited for, the worker is in no control group any more. Groups of version 1
  // show a dead process in their root: there it counts where the worker was when it began.
  void note_groups_of_dead() {
    const std::string now = groups_now();
    const auto memberships = read_memberships(now);
    const bool is_version_1 = std::any_of(memberships.begin(), memberships.end(),
                                          [](const auto& one) { return one.has("memory"); });
    if (!is_version_1 && !now.empty()) groups_ = now;
  }
  bool is_dead_worker_there() const {
    siginfo_t ended{};
    return ::waitid(P_PID, static_cast<id_t>(worker_), &ended,
                    WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 &&
           ended.si_pid == worker_;
  }

  void report_exit(int status) {
    ReaperReport report;
    report.kind = ReaperReport::Kind::exited;
    std::memcpy(report.message, groups_.data(),
                std::min(groups_.size(), sizeof(report.message) - 1));
    report.pid = worker_;
    report.wait_status = status;
    exit_reported_ = true;
    send(report);
  }

  int agent_;
  const SharedLease& lease_;
  OrphanTimer orphan_timer_;
  std::uint64_t times_heard_ = 0;
  UniqueFd signals_;
  UniqueFd lease_timer_;
  LeaseTime timer_set_to_ = kNoLeaseEnd;
  UniqueFd launch_error_pipe_;  // open until the worker's program runs
  pid_t worker_ = -1;
  std::string groups_;  // control groups of the worker
  std::optional<DeathWatch> death_watch_;
  TimePoint next_look_at_death_ = kNever;
  TimePoint look_at_death_until_{};
  std::vector<int> early_signals_;
  std::optional<int> early_exit_;
  bool launch_failed_ = false;
  bool exit_reported_ = false;
  bool killing_ = false;
  TimePoint next_kill_ = kNever;
  TimePoint unkillable_at_ = kNever;
  milliseconds kill_pause_ = kFirstKillPause;
  bool frozen_ = false;
  std::set<pid_t> stopped_by_us_;
  TimePoint next_pass_ = kNever;  // of freezing while frozen, of thawing while some are stopped
  milliseconds pass_pause_ = kFirstPassPause;
};

}  // namespace

PlaceWait wait_for_place(int predecessor, int agent, TimePoint deadline,
                         std::vector<int>& signals) {
  std::array<pollfd, 2> polled{pollfd{predecessor, POLLIN, 0}, pollfd{agent, POLLIN, 0}};
  for (;;) {
    const int ready =
        ::poll(polled.data(), polled.size(), milliseconds_until(deadline, Clock::now()));
    if (ready == 0) return PlaceWait::overdue;
    if (ready < 0) continue;
    if (polled[0].revents != 0) return PlaceWait::free;

    ReaperOrder order;
    const ssize_t got = ::recv(agent, &order, sizeof(order), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return PlaceWait::agent_gone;
    if (order.kind == ReaperOrder::Kind::kill) return PlaceWait::stopped;
    if (order.kind == ReaperOrder::Kind::signal) signals.push_back(order.signal_number);
  }
}

Result<Reaper> fork_reaper(const WorkerStart& start, const SharedLease& lease,
                           bool outlives_driver) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Status::from_errno("make a socket pair", errno);
  }
  Reaper reaper;
  reaper.socket = UniqueFd(ends[0]);
  UniqueFd other(ends[1]);
  reaper.pid = ::fork();
  if (reaper.pid < 0) return Status::from_errno("fork the worker's reaper", errno);
  if (reaper.pid > 0) return reaper;

  // This process has the agent's memory, and with it messages with credentials of workers that the
  // agent had not dealt with yet. It leaves no core dump, and the worker's program has its own
  // memory.
  ::prctl(PR_SET_DUMPABLE, 0);
  // In this process the agent's descriptors are plain numbers: no destructor of its objects may
  // run.
  WorkerStart mine{start.command,
                   start.environment,
                   start.working_directory,
                   start.processors,
                   UniqueFd(start.socket.get()),
                   UniqueFd(),
                   UniqueFd(start.state_memory.get()),
                   UniqueFd(start.predecessor.get()),
                   UniqueFd(start.standard_output.get()),
                   UniqueFd(start.standard_error.get()),
                   start.open_files};
  std::vector<int> kept = {other.get(), mine.standard_output.get(), mine.standard_error.get()};
  for (const UniqueFd* const fd : {&mine.socket, &mine.predecessor, &mine.state_memory}) {
    if (*fd) kept.push_back(fd->get());
  }
  close_all_but(std::move(kept));
  if (outlives_driver) forget_standard_error();
  ReaperProcess(other.get(), lease).run(std::move(mine));
  ::_exit(0);
}

bool receive_reports(const UniqueFd& reaper,
                     const std::function<void(const ReaperReport&)>& on_report) {
  while (reaper) {
    ReaperReport report;
    const ssize_t got = ::recv(reaper.get(), &report, sizeof(report), MSG_DONTWAIT);
    // A reaper that ended before it read its last order resets the connection. That error comes
    // once and before the reports that are still in the queue.
    if (got < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    on_report(report);
  }
  return true;
}

}  // namespace hvd::agent
