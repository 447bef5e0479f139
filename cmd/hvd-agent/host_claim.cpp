#include "cmd/hvd-agent/host_claim.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/machine/proc.h"
#include "base/security/unix_peer.h"
#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvd-agent/process_tree.h"

namespace hvd::agent {
namespace {

// A name that is in use although nobody accepts there: its agent is about to listen, or has ended.
// Also between two rounds of SIGKILL.
constexpr std::chrono::milliseconds kPause{20};
constexpr int kNewerAgents = 8;

UniqueFd unix_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The other end is closed: by its process's end, or just before it. Nothing is ever sent here.
bool is_closed_by_peer(int connection) {
  pollfd poll_of{connection, 0, 0};
  return ::poll(&poll_of, 1, 0) == 1 && (poll_of.revents & POLLHUP) != 0;
}

// The process at the other end, if it is one of this user.
std::optional<pid_t> own_process(int connection) {
  const auto peer = unix_peer(connection);
  if (!peer || peer->uid != ::geteuid()) return std::nullopt;
  return peer->pid;
}

}  // namespace

std::string claim_name(const std::string& job_id, const std::string& host) {
  // All agents of a job are of one build, so this is the same number in all of them.
  return cat("hvd-agent.", ::geteuid(), ".", job_id, ".", std::hash<std::string>()(host));
}

void HostClaim::begin(const std::string& job_id, const std::string& host,
                      std::function<void()> on_claimed, TimePoint now) {
  on_claimed_ = std::move(on_claimed);
  if (host.empty()) return finish();
  name_ = claim_name(job_id, host);
  give_up_at_ = now + kFormerTimeout;
  try_to_claim(now);
}

void HostClaim::on_time(TimePoint now) {
  if (now < next_try_) return;
  if (kills_former_ && now < give_up_at_) return kill_former(now);
  if (now < give_up_at_) return try_to_claim(now);
  if (!kills_former_ && former_pid() > 0) return begin_to_kill(now);
  if (const pid_t pid = former_pid(); pid > 0) ::kill(pid, SIGKILL);
  HVD_LOG(warning,
          "an older agent of this job does not leave this host; its workers may hold "
          "devices and ports");
  finish();
}

void HostClaim::try_to_claim(TimePoint now) {
  const Status listening = listen();
  if (listening.ok()) return finish();
  if (listening.code() != Code::already_exists) {
    HVD_LOG(warning,
            "a newer agent of this job will not be able to end this one: " << listening.message());
    return finish();
  }

  UniqueFd connection = unix_socket();
  const AbstractAddress where(name_);
  if (!connection || ::connect(connection.get(), where.get(), where.size) != 0) {
    next_try_ = now + kPause;
    return;
  }
  if (!own_process(connection.get())) return finish();  // the name is a stranger's
  wait_for_former(std::move(connection), now);
}

void HostClaim::wait_for_former(UniqueFd connection, TimePoint now) {
  auto watch = loop_.watch(connection.get(), EPOLLIN, [this](std::uint32_t) { on_former_gone(); });
  if (!watch.ok()) return finish();
  HVD_LOG(info, "an older agent of this job is still on this host, and is told to end");
  former_ = std::move(connection);
  former_watch_ = std::move(*watch);
  next_try_ = give_up_at_;
  if (const pid_t pid = former_pid(); pid > 0 && is_stopped(pid)) begin_to_kill(now);
}

void HostClaim::on_former_gone() {
  const TimePoint now = Clock::now();
  former_watch_.end();
  former_.reset();
  kills_former_ = false;
  give_up_at_ = now + kFormerTimeout;  // another one may have come meanwhile
  try_to_claim(now);
}

// While the former agent holds its end of the connection, its number is still its own. An agent
// that has closed it is left alone, even when it looks stopped: its workers are dead, and it is
// about to end. It is stopped, for example, while a leak checker looks at its memory.
pid_t HostClaim::former_pid() const {
  if (!former_ || is_closed_by_peer(former_.get())) return 0;
  return own_process(former_.get()).value_or(0);
}

void HostClaim::begin_to_kill(TimePoint now) {
  kills_former_ = true;
  give_up_at_ = now + kKillTimeout;
  kill_former(now);
}

// A stopped agent starts nothing more and waits for none of its children, so that all of them can
// still be found. It goes last: its end is what on_former_gone() hears of.
void HostClaim::kill_former(TimePoint now) {
  next_try_ = now + kPause;
  const pid_t pid = former_pid();
  if (pid <= 0) return;
  ::kill(pid, SIGSTOP);
  const auto found = kill_descendants(pid, [] {}).found;  // of another process
  if (std::all_of(found.begin(), found.end(), is_dead)) ::kill(pid, SIGKILL);
}

Status HostClaim::listen() {
  UniqueFd fd = unix_socket();
  const AbstractAddress where(name_);
  if (!fd || ::bind(fd.get(), where.get(), where.size) != 0) {
    if (errno == EADDRINUSE) return {Code::already_exists, "the name is in use"};
    return Status::from_errno("bind a Unix socket", errno);
  }
  if (::listen(fd.get(), kNewerAgents) != 0) return Status::from_errno("listen", errno);
  auto watch = loop_.watch(fd.get(), EPOLLIN, [this](std::uint32_t) { on_connection(); });
  HVD_RETURN_IF_ERROR(watch.status());
  listener_ = std::move(fd);
  listener_watch_ = std::move(*watch);
  return {};
}

void HostClaim::on_connection() {
  UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection || !own_process(connection.get())) return;
  newer_.push_back(std::move(connection));
  on_superseded_();
}

void HostClaim::finish() {
  next_try_ = give_up_at_ = kNever;
  if (const auto claimed = std::exchange(on_claimed_, nullptr)) claimed();
}

}  // namespace hvd::agent
