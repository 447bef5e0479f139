#include "cmd/hvdrun/agent_relay.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/machine/own_time.h"
#include "base/text.h"
#include "base/threads.h"
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

// Joins another hvdrun of the job, on a thread of its own, while that of before is silent: its
// machine may have died, which ends no connection. An hvdrun that is only slow or stopped refuses.
class OtherHvdrun {
 public:
  static Result<OtherHvdrun> seek(JoinClient client) {
    UniqueFd found(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!found) return Status::from_errno("eventfd", errno);
    OtherHvdrun other(std::make_shared<Search>(std::move(client), std::move(found)));
    HVD_RETURN_IF_ERROR(other.threads_->start([search = other.search_] {
      auto joined = search->client.join_again(kNoLimit, &search->stops);
      if (!joined.ok()) return;
      const std::lock_guard lock(search->mutex);
      search->joined = std::move(*joined);
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(search->found.get(), &one, sizeof(one));
    }));
    return other;
  }
  ~OtherHvdrun() {
    if (!search_) return;
    search_->stops = true;
    threads_->join_until(Clock::now());  // it may wait for an answer
  }
  OtherHvdrun(OtherHvdrun&&) = default;
  OtherHvdrun& operator=(OtherHvdrun&&) = delete;
  OtherHvdrun(const OtherHvdrun&) = delete;
  OtherHvdrun& operator=(const OtherHvdrun&) = delete;

  int fd() const { return search_->found.get(); }  // readable: it has joined
  std::optional<Joined> take() {
    const std::lock_guard lock(search_->mutex);
    return std::exchange(search_->joined, std::nullopt);
  }

 private:
  static constexpr std::chrono::hours kNoLimit{24 * 365};
  struct Search {
    Search(JoinClient the_client, UniqueFd fd)
        : client(std::move(the_client)), found(std::move(fd)) {}
    JoinClient client;
    std::atomic<bool> stops = false;
    UniqueFd found;
    std::mutex mutex;
    std::optional<Joined> joined;
  };
  explicit OtherHvdrun(std::shared_ptr<Search> search) : search_(std::move(search)) {}

  std::shared_ptr<Search> search_;
  std::unique_ptr<ThreadGroup> threads_ = std::make_unique<ThreadGroup>();
};

class Relay {
 public:
  // `client` outlives this.
  Relay(Joined joined, driver::AgentConnection& agent, int signals, const JoinClient& client)
      : wire_(std::move(joined.socket)),
        tls_(std::move(joined.tls)),
        to_agent_(std::move(joined.received)),
        agent_(agent),
        signals_(signals),
        client_(client),
        silence_(joined.silence, Clock::now()),
        holds_(joined.hold.count() > 0) {}

  // Returns when the agent has ended and its messages were sent; of an agent that holds its workers
  // also when the connection is lost, and the agent has all that has come there.
  void run() {
    while (!is_over() && !(holds_ && link_shut_)) {
      if (wait()) turn();
      look_for_another();
    }
    other_.reset();
    close_tls();
  }

  // Another hvdrun of the job that has been joined since, if one has.
  std::optional<Joined> take_other() { return std::exchange(joined_, std::nullopt); }
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
               pollfd{agent_ended_ ? -1 : agent_.handle->ended_fd(), POLLIN, 0},
               pollfd{other_ ? other_->fd() : -1, POLLIN, 0}};
    to_wire_ += tls_.take_outgoing();
    if (to_agent_.size() < kMaxWaiting) polled_[0].events |= POLLIN;
    if (!to_wire_.empty()) polled_[0].events |= POLLOUT;
    if (to_wire_.size() < kMaxWaiting) polled_[1].events |= POLLIN;
    if (!to_agent_.empty()) polled_[1].events |= POLLOUT;
    // poll() would report errors of a descriptor without events again and again.
    for (auto& entry : polled_) {
      if (entry.events == 0) entry.fd = -1;
    }
    const TimePoint look_at = watches_silence() ? Clock::now() + silence_.pace() : kNever;
    const int ready = ::poll(polled_.data(), polled_.size(),
                             milliseconds_until(std::min(deadline_, look_at), Clock::now()));
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

  bool watches_silence() const {
    return holds_ && !wire_closed_ && silence_.limit() > Duration::zero();
  }

  void look_for_another() {
    if (!watches_silence()) return;
    const TimePoint now = Clock::now();
    silence_.look(now);
    if (!silence_.is_too_long(now)) return other_.reset();
    if (!other_) {
      say(cat("hvdrun gives no sign of life for ", seconds_text(silence_.limit()),
              "; looking for another one of the job"));
      auto other = OtherHvdrun::seek(client_);
      if (!other.ok()) return silence_.hear(now);  // it is tried again, after as long a silence
      other_.emplace(*std::move(other));
      return;
    }
    joined_ = other_->take();
    if (joined_) lose("it gave no sign of life, and another hvdrun of the job has come");
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
    silence_.hear(Clock::now());
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
  const JoinClient& client_;
  PeerSilence silence_;
  const bool holds_;
  std::optional<OtherHvdrun> other_;  // is looked for
  std::optional<Joined> joined_;
  std::array<pollfd, 5> polled_{};
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
  ServingAgents(std::string path, JoinClient& client) : path_(std::move(path)), client_(client) {}

  // Serves the job that has begun; the result is the exit code, or nothing if the connection was
  // lost and the agent holds its workers.
  std::optional<int> serve(Joined joined, int signals, const std::string& who) {
    hold_ = joined.hold;
    auto agent = driver::AgentProcess::start(path_);
    if (!agent.ok()) return end(fail_join(agent.status()));
    agents_.push_back(std::move(*agent));
    driver::AgentConnection& newest = agents_.back();
    Relay relay(std::move(joined), newest, signals, client_);
    relay.run();
    next_ = relay.take_other();
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

  // The job, for the first time, or again for workers that are held.
  Result<Joined> join() {
    if (next_) {
      client_.has_joined(*next_);
      return *std::exchange(next_, std::nullopt);
    }
    return agents_.empty() ? client_.join() : client_.join_again(hold_);
  }
  // Ends them, and all that they have started. Returns the code.
  int end(int code) {
    agent_that_holds = 0;
    agents_.clear();
    if (driver::Subreaper::any_child()) subreaper_.kill_orphans(kOrphanLimit);
    return code;
  }

 private:
  const std::string path_;
  JoinClient& client_;
  std::optional<Joined> next_;         // another hvdrun, which is joined already
  const driver::Subreaper subreaper_;  // adopts the processes of an agent that is killed
  std::vector<driver::AgentConnection> agents_;
  std::chrono::milliseconds hold_{0};
};

}  // namespace

int run_agent(const AgentArguments& arguments) {
  const auto path = find_agent();
  if (!path.ok()) return fail_join(path.status());
  const std::string who = to_text(arguments.join);
  JoinClient client(arguments, say);
  ServingAgents agents(*path, client);
  for (;;) {
    auto joined = agents.join();
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
