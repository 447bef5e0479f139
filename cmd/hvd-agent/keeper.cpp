#include "cmd/hvd-agent/keeper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <linux/close_range.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "cmd/hvd-agent/process_tree.h"

namespace hvd::agent {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstKillPause{1};
constexpr milliseconds kLongestKillPause{100};
constexpr std::chrono::seconds kStubbornAfter{5};

void close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = STDERR_FILENO + 1;
  for (const int fd : kept) {
    const auto number = static_cast<unsigned>(fd);
    if (number > first) ::syscall(SYS_close_range, first, number - 1, 0);
    first = number + 1;
  }
  ::syscall(SYS_close_range, first, ~0U, 0);
}

class KeeperProcess {
 public:
  explicit KeeperProcess(int agent) : agent_(agent) {}

  void run(WorkerStart start) {
    ::prctl(PR_SET_NAME, "hvd-keeper");
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    signals_ = UniqueFd(::signalfd(-1, &child_ended, SFD_CLOEXEC | SFD_NONBLOCK));

    auto worker = start_worker(start);
    start = {};  // only the worker holds its ends now
    if (!worker.ok()) return report_launch_failed(EAGAIN, worker.status().message());
    worker_ = worker->pid;
    trouble_ = std::move(worker->trouble);
    while (!launch_failed_ && (reap() || !exit_reported_)) serve();
  }

 private:
  void send(const KeeperReport& report) const {
    // The agent reads these; should its queue be full, the keeper may wait.
    while (::send(agent_, &report, sizeof(report), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }

  void report_launch_failed(int error_number, const std::string& message) {
    KeeperReport report;
    report.kind = KeeperReport::Kind::launch_failed;
    report.error_number = error_number;
    std::memcpy(report.message, message.data(),
                std::min(message.size(), sizeof(report.message) - 1));
    send(report);
  }

  void serve() {
    std::array<pollfd, 3> polled{pollfd{agent_, POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0},
                                 pollfd{trouble_ ? trouble_.get() : -1, POLLIN, 0}};
    const int timeout = killing_ ? milliseconds_until(next_kill_, Clock::now()) : -1;
    ::poll(polled.data(), polled.size(), timeout);
    signalfd_siginfo ignored{};
    while (::read(signals_.get(), &ignored, sizeof(ignored)) > 0) {
    }
    if (polled[2].revents != 0) hear_of_launch();
    if (polled[0].revents != 0) take_order();
    if (killing_ && Clock::now() >= next_kill_) kill_once();
  }

  void hear_of_launch() {
    std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::read(trouble_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) return;
    trouble_.reset();
    if (got > 0) {
      const auto why = parse_trouble({buffer.data(), static_cast<std::size_t>(got)});
      report_launch_failed(why.error_number, why.message);
      launch_failed_ = true;
      ::waitpid(worker_, nullptr, 0);
      return;
    }
    KeeperReport report;
    report.kind = KeeperReport::Kind::launched;
    report.pid = worker_;
    send(report);
    if (early_exit_) return report_exit(*early_exit_);
    for (const int number : early_signals_) signal_group(number);
  }

  void take_order() {
    KeeperOrder order;
    const ssize_t got = ::recv(agent_, &order, sizeof(order), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
      agent_ = -1;  // poll() passes over it from now on
      order.kind = KeeperOrder::Kind::kill;
    }
    if (order.kind == KeeperOrder::Kind::kill) {
      if (!killing_) stubborn_at_ = Clock::now() + kStubbornAfter;
      killing_ = true;
      kill_pause_ = kFirstKillPause;
      next_kill_ = Clock::now();
    } else if (trouble_) {
      early_signals_.push_back(order.signal_number);
    } else {
      signal_group(order.signal_number);
    }
  }

  void signal_group(int number) {
    if (!exit_reported_) {
      ::kill(-worker_, number);  // not reaped yet, so the number is still the worker's
      return;
    }
    for (const auto& process : descendants_of(::getpid())) {
      if (::getpgid(process.pid) == worker_) signal_descendant(process, ::getpid(), number);
    }
  }

  void kill_once() {
    const auto pass = kill_descendants(::getpid());
    next_kill_ = Clock::now() + kill_pause_;
    kill_pause_ = std::min(2 * kill_pause_, kLongestKillPause);
    if (Clock::now() < stubborn_at_) return;
    stubborn_at_ = kNever;
    for (const pid_t pid : pass.found) {
      KeeperReport report;
      report.kind = KeeperReport::Kind::stubborn;
      report.pid = pid;
      const auto& forbidden = pass.forbidden;
      if (std::find(forbidden.begin(), forbidden.end(), pid) != forbidden.end()) {
        report.error_number = EPERM;
      }
      send(report);
    }
  }

  // Takes in everybody who ended; false when nobody is left.
  bool reap() {
    for (;;) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG | __WALL);
      if (pid == 0) return true;
      if (pid < 0) return errno != ECHILD;
      if (pid != worker_) continue;
      if (trouble_) {
        early_exit_ = status;  // whether it was launched at all is not known yet
        hear_of_launch();
      } else {
        report_exit(status);
      }
    }
  }

  void report_exit(int status) {
    KeeperReport report;
    report.kind = KeeperReport::Kind::exited;
    report.pid = worker_;
    report.wait_status = status;
    exit_reported_ = true;
    send(report);
  }

  int agent_;
  UniqueFd signals_;
  UniqueFd trouble_;  // open until the worker's program runs
  pid_t worker_ = -1;
  std::vector<int> early_signals_;
  std::optional<int> early_exit_;
  bool launch_failed_ = false;
  bool exit_reported_ = false;
  bool killing_ = false;
  TimePoint next_kill_ = kNever;
  TimePoint stubborn_at_ = kNever;
  milliseconds kill_pause_ = kFirstKillPause;
};

}  // namespace

Result<Keeper> fork_keeper(const WorkerStart& start) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Status::from_errno("make a socket pair", errno);
  }
  Keeper keeper;
  keeper.socket = UniqueFd(ends[0]);
  UniqueFd other(ends[1]);
  keeper.pid = ::fork();
  if (keeper.pid < 0) return Status::from_errno("fork the worker's keeper", errno);
  if (keeper.pid > 0) return keeper;

  // What the agent holds is held here as numbers only: nothing of it may run its destructor.
  WorkerStart mine{start.command,
                   start.environment,
                   start.working_directory,
                   UniqueFd(start.socket.get()),
                   UniqueFd(start.standard_output.get()),
                   UniqueFd(start.standard_error.get()),
                   start.open_files};
  close_all_but(
      {other.get(), mine.socket.get(), mine.standard_output.get(), mine.standard_error.get()});
  KeeperProcess(other.get()).run(std::move(mine));
  ::_exit(0);
}

}  // namespace hvd::agent
