#include "cmd/hvd-agent/host_claim.h"

#include <cerrno>
#include <csignal>
#include <optional>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/abstract_address.h"
#include "base/log.h"
#include "base/machine/proc.h"
#include "base/security/unix_peer.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

// A name that is in use although nobody accepts there: its agent is about to listen, or has ended.
constexpr std::chrono::milliseconds kPause{20};
constexpr int kNewerAgents = 8;

UniqueFd unix_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The process at the other end, if it is one of this user.
std::optional<pid_t> own_process(int connection) {
  const auto peer = unix_peer(connection);
  if (!peer || peer->uid != ::geteuid()) return std::nullopt;
  return peer->pid;
}

}  // namespace

void HostClaim::begin(const std::string& job_id, const std::string& host,
                      std::function<void()> on_claimed, TimePoint now) {
  on_claimed_ = std::move(on_claimed);
  if (host.empty()) return finish();
  // All agents of a job are of one build, so this is the same number in all of them.
  name_ = cat("hvd-agent.", ::geteuid(), ".", job_id, ".", std::hash<std::string>()(host));
  give_up_at_ = now + kFormerTimeout;
  try_to_claim(now);
}

void HostClaim::on_time(TimePoint now) {
  if (now < next_try_) return;
  if (now < give_up_at_) return try_to_claim(now);
  kill_former();
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
  wait_for_former(std::move(connection));
}

void HostClaim::wait_for_former(UniqueFd connection) {
  auto watch = loop_.watch(connection.get(), EPOLLIN, [this](std::uint32_t) { on_former_gone(); });
  if (!watch.ok()) return finish();
  HVD_LOG(info, "an older agent of this job is still on this host, and is told to end");
  former_ = std::move(connection);
  former_watch_ = std::move(*watch);
  next_try_ = give_up_at_;
  if (const auto pid = own_process(former_.get()); pid && is_stopped(*pid)) kill_former();
}

void HostClaim::on_former_gone() {
  former_watch_.end();
  former_.reset();
  try_to_claim(Clock::now());
}

// Its reapers kill the workers then. It holds its end of the connection, and nobody else does: so
// its number is still its own.
void HostClaim::kill_former() const {
  if (!former_) return;
  if (const auto pid = own_process(former_.get()); pid && *pid > 0) ::kill(*pid, SIGKILL);
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
