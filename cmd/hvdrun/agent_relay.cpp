#include "cmd/hvdrun/agent_relay.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvdrun/hvdrun.h"
#include "cmd/hvdrun/job_setup.h"
#include "cmd/hvdrun/join_client.h"
#include "driver/agents/agent_process.h"
#include "driver/core/orphans.h"
#include "driver/core/signals.h"

namespace hvd::cli {
namespace {

// Limit of bytes that were read on one side and wait to be written on the other.
constexpr std::size_t kMaxWaiting = std::size_t{1} << 20;
// Time for the agent to kill its workers and exit after the connection was lost.
constexpr std::chrono::seconds kAgentExitTimeout{30};
// Time for the driver to receive the agent's last messages.
constexpr std::chrono::seconds kLastMessagesTimeout{5};
constexpr std::chrono::seconds kOrphanLimit{5};

void say(std::string_view text) {
  std::fprintf(stderr, "hvdrun agent: %.*s\n", static_cast<int>(text.size()), text.data());
}

int fail_join(const Status& status) {
  say(status.message());
  return kExitFailure;
}

// The exit code of a child, or 128 + its signal; the child can still be waited for (WNOWAIT).
int exit_code_of(pid_t pid) {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0) {
    if (errno != EINTR) return kExitFailure;
  }
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

class Relay {
 public:
  Relay(Joined joined, driver::AgentConnection& agent, int signals)
      : wire_(std::move(joined.socket)),
        tls_(std::move(joined.tls)),
        to_agent_(std::move(joined.received)),
        agent_(agent),
        signals_(signals) {}

  // Returns when the agent has ended and its messages were sent; of an agent that holds its workers
  // also when the connection is lost, and the agent has all that has come there.
  void run(bool holds) {
    while (!is_over() && !(holds && link_shut_)) {
      if (wait()) turn();
    }
    close_tls();
  }

  bool has_ended() const { return agent_ended_; }
  // Why the connection was lost before the agent had ended; empty if it was not lost.
  const std::string& lost() const { return lost_; }

 private:
  bool is_over() const {
    return agent_ended_ && link_closed_ && (wire_closed_ || to_wire_.empty());
  }

  // False if only the deadline has passed.
  bool wait() {
    polled_ = {pollfd{wire_closed_ ? -1 : wire_.get(), 0, 0},
               pollfd{link_closed_ ? -1 : agent_.link.get(), 0, 0}, pollfd{signals_, POLLIN, 0},
               pollfd{agent_ended_ ? -1 : agent_.handle->ended_fd(), POLLIN, 0}};
    to_wire_ += tls_.take_outgoing();
    if (to_agent_.size() < kMaxWaiting) polled_[0].events |= POLLIN;
    if (!to_wire_.empty()) polled_[0].events |= POLLOUT;
    if (to_wire_.size() < kMaxWaiting) polled_[1].events |= POLLIN;
    if (!to_agent_.empty()) polled_[1].events |= POLLOUT;
    // poll() would report errors of a descriptor without events again and again.
    for (auto& entry : polled_) {
      if (entry.events == 0) entry.fd = -1;
    }
    const int ready =
        ::poll(polled_.data(), polled_.size(), milliseconds_until(deadline_, Clock::now()));
    if (ready > 0) return true;
    if (Clock::now() < deadline_) return false;
    deadline_ = kNever;
    if (!agent_ended_) {
      agent_.handle->kill();
    } else {
      lose("it stopped reading");
    }
    return false;
  }

  void turn() {
    if (polled_[2].revents != 0) pass_on_signal();
    if (polled_[0].revents != 0) read_wire();
    if (polled_[1].revents != 0) read_link();
    write_link();
    write_wire();
    if (polled_[3].revents != 0 && !agent_ended_) {
      agent_ended_ = true;
      deadline_ = Clock::now() + kLastMessagesTimeout;
    }
  }

  void pass_on_signal() {
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return;
    const int number = info.ssi_signo == SIGUSR1 ? SIGUSR1 : SIGTERM;
    if (!agent_ended_) ::kill(agent_.handle->pid(), number);
  }

  void lose(std::string why) {
    if (std::exchange(wire_closed_, true)) return;
    if (!agent_ended_) {
      lost_ = std::move(why);
      deadline_ = Clock::now() + kAgentExitTimeout;
    }
    to_wire_.clear();
  }

  void read_wire() {
    if (wire_closed_ || to_agent_.size() >= kMaxWaiting) return;
    const ssize_t got = ::recv(wire_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) return lose(Status::from_errno("it lost the connection", errno).message());
    if (got == 0) return lose("it closed the connection");
    const Status said = tls_.receive({buffer_.data(), static_cast<std::size_t>(got)});
    to_agent_ += tls_.take_received();
    if (!said.ok()) return lose(said.message());
    if (tls_.is_closed()) lose("it closed the connection");
  }

  void read_link() {
    if (link_closed_ || to_wire_.size() >= kMaxWaiting) return;
    const ssize_t got = ::recv(agent_.link.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      link_closed_ = true;
      return;
    }
    if (wire_closed_) return;  // the driver cannot receive it any more
    const Status sent = tls_.send({buffer_.data(), static_cast<std::size_t>(got)});
    if (!sent.ok()) lose(sent.message());
  }

  void write_link() {
    if (!link_closed_ && !to_agent_.empty()) {
      const ssize_t sent = ::send(agent_.link.get(), to_agent_.data(), to_agent_.size(),
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) to_agent_.erase(0, static_cast<std::size_t>(sent));
      // The agent does not read any more, but its last messages are still relayed.
      if (sent < 0 && errno != EAGAIN && errno != EINTR) to_agent_.clear();
    }
    // The agent sees the end only after all bytes of the driver.
    if (wire_closed_ && to_agent_.empty() && !std::exchange(link_shut_, true)) {
      ::shutdown(agent_.link.get(), SHUT_WR);
    }
  }

  void write_wire() {
    to_wire_ += tls_.take_outgoing();
    if (wire_closed_ || to_wire_.empty()) return;
    const ssize_t sent =
        ::send(wire_.get(), to_wire_.data(), to_wire_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) to_wire_.erase(0, static_cast<std::size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      lose(Status::from_errno("it lost the connection", errno).message());
    }
  }

  void close_tls() {
    if (wire_closed_) return;
    tls_.close();
    // Without close_notify, the driver still sees the end of the connection.
    static_cast<void>(
        send_all(wire_.get(), tls_.take_outgoing(), Clock::now() + kLastMessagesTimeout));
  }

  UniqueFd wire_;
  TlsSession tls_;
  std::string to_agent_;
  std::string to_wire_;
  driver::AgentConnection& agent_;
  const int signals_;
  std::array<pollfd, 4> polled_{};
  std::array<char, 65536> buffer_{};
  TimePoint deadline_ = kNever;
  bool wire_closed_ = false;
  bool link_closed_ = false;
  bool link_shut_ = false;
  bool agent_ended_ = false;
  std::string lost_;
};

// The signals that end an agent or ask it something come through a descriptor from now on, until
// release(): then they act at once again, also on what blocks.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t ours;
    sigemptyset(&ours);
    for (const int number : {SIGTERM, SIGUSR1}) sigaddset(&ours, number);
    for (const int number : {SIGINT, SIGHUP}) {
      if (!driver::is_ignored(number)) sigaddset(&ours, number);
    }
    ::sigprocmask(SIG_BLOCK, &ours, &before_);
    fd_ = UniqueFd(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) status_ = Status::from_errno("signalfd", errno);
  }

  void release() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  const Status& status() const { return status_; }
  int fd() const { return fd_.get(); }

 private:
  sigset_t before_{};
  UniqueFd fd_;
  Status status_;
};

// A process that is told to end while it joins again tells the agent that holds workers to end, and
// that one stops them.
std::atomic<pid_t> agent_that_holds{0};

extern "C" void end_agent_that_holds(int signal_number) {
  if (const pid_t agent = agent_that_holds; agent > 0) ::kill(agent, SIGTERM);
  ::_exit(128 + signal_number);
}

// The agents of this machine for one job: the one that serves it, and those that it started before
// hvdrun died. The first of them holds the workers, and serves the link of each later one
// (cmd/hvd-agent/link_handover.h).
class ServingAgents {
 public:
  explicit ServingAgents(std::string path) : path_(std::move(path)) {}

  // Serves the job that has begun; the result is the exit code, or nothing if the connection was
  // lost and the agent holds its workers.
  std::optional<int> serve(Joined joined, int signals, const std::string& who) {
    hold_ = joined.hold;
    auto agent = driver::AgentProcess::start(path_);
    if (!agent.ok()) return end(fail_join(agent.status()));
    agents_.push_back(std::move(*agent));
    driver::AgentConnection& newest = agents_.back();
    Relay relay(std::move(joined), newest, signals);
    relay.run(hold_.count() > 0);
    if (!relay.has_ended()) {
      say(cat("the job at ", who, " was lost: ", relay.lost(), "; its workers here run on for ",
              seconds_text(hold_), " (--hold)"));
      newest.link.reset();
      agent_that_holds = agents_.front().handle->pid();
      for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
        if (!driver::is_ignored(number)) std::signal(number, end_agent_that_holds);
      }
      return std::nullopt;
    }

    const int code = exit_code_of(newest.handle->pid());
    const std::string how = newest.handle->reap();
    if (code != 0 && !relay.lost().empty()) {
      say(cat("the job at ", who, " was lost: ", relay.lost(), "; its workers here were ended"));
    } else if (code != 0) {
      say(cat("the agent ", how));
    }
    return end(code);
  }

  bool hold() const { return !agents_.empty(); }
  std::chrono::milliseconds time_to_hold() const { return hold_; }
  // Ends them, and all that they have started. Returns the code.
  int end(int code) {
    agent_that_holds = 0;
    agents_.clear();
    if (driver::Subreaper::any_child()) subreaper_.kill_orphans(kOrphanLimit);
    return code;
  }

 private:
  const std::string path_;
  const driver::Subreaper subreaper_;  // adopts the processes of an agent that is killed
  std::vector<driver::AgentConnection> agents_;
  std::chrono::milliseconds hold_{0};
};

}  // namespace

int run_agent(const AgentArguments& arguments) {
  const auto path = find_agent();
  if (!path.ok()) return fail_join(path.status());
  const std::string who = SocketAddress{arguments.join.host, arguments.join.port}.to_string();
  JoinClient client(arguments, say);
  ServingAgents agents(*path);
  for (;;) {
    auto joined = agents.hold() ? client.join_again(agents.time_to_hold()) : client.join();
    if (!joined.ok()) return agents.end(fail_join(joined.status()));
    say(cat("joined the job at ", who));

    const BlockedSignals signals;
    if (!signals.status().ok()) return agents.end(fail_join(signals.status()));
    const Turn turn = wait_for_turn(*joined, signals.fd());
    switch (turn.how) {
      case Turn::How::begun:
        if (const auto code = agents.serve(std::move(*joined), signals.fd(), who)) return *code;
        break;
      case Turn::How::dismissed:
        say(cat("the job at ", who, " ended before this machine had its turn"));
        return agents.end(kExitFailure);
      case Turn::How::signalled:
        return agents.end(128 + turn.signal);
      case Turn::How::lost:
        say(cat("the job at ", who, " was lost before this machine had its turn: ", turn.why,
                "; trying again"));
    }
    signals.release();
  }
}

}  // namespace hvd::cli
