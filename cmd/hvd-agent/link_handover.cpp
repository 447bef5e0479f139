#include "cmd/hvd-agent/link_handover.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/security/unix_peer.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

// More than a busy driver sends before its Hello is answered.
constexpr std::uint32_t kMostReceived = 64U << 20;
constexpr int kMessengers = 8;
constexpr std::size_t kLinkFds = 3;

// Goes with the descriptors; the received bytes follow. Both ends are of one build.
struct Head {
  std::uint32_t received = 0;
  pid_t parent = 0;
};

bool is_own_process(int connection) {
  const auto peer = unix_peer(connection);
  return peer && peer->uid == ::geteuid();
}

struct HeadMessage {
  HeadMessage() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  Head head;
  iovec part{&head, sizeof(head)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kLinkFds * sizeof(int))> control{};
  msghdr message{};
};

// The head with both descriptors; nothing: it is no messenger that speaks there.
std::optional<std::pair<Head, HandedLink>> receive_head(int connection) {
  HeadMessage got;
  const ssize_t size = ::recvmsg(connection, &got.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size != static_cast<ssize_t>(sizeof(Head))) return std::nullopt;
  const cmsghdr* const about = CMSG_FIRSTHDR(&got.message);
  if (about == nullptr || about->cmsg_level != SOL_SOCKET || about->cmsg_type != SCM_RIGHTS ||
      about->cmsg_len != CMSG_LEN(kLinkFds * sizeof(int))) {
    return std::nullopt;
  }
  std::array<int, kLinkFds> fds{};
  std::memcpy(fds.data(), CMSG_DATA(about), sizeof(fds));
  HandedLink link{UniqueFd(fds[0]), UniqueFd(fds[1]), UniqueFd(fds[2]), {}, got.head.parent};
  if (got.head.received > kMostReceived) return std::nullopt;
  return std::pair(got.head, std::move(link));
}

}  // namespace

std::string handover_name(const std::string& claim) { return cat(claim, ".link"); }

Status HandoverListener::listen(const std::string& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress where(name);
  if (!fd || ::bind(fd.get(), where.get(), where.size) != 0 ||
      ::listen(fd.get(), kMessengers) != 0) {
    return Status::from_errno("listen for the next hvdrun at a Unix socket", errno);
  }
  auto watch = loop_.watch(fd.get(), EPOLLIN, [this](std::uint32_t) { on_connection(); });
  HVD_RETURN_IF_ERROR(watch.status());
  listener_ = std::move(fd);
  listener_watch_ = std::move(*watch);
  return {};
}

// A later messenger takes the place of one that has not passed all of its link.
void HandoverListener::on_connection() {
  UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection || !is_own_process(connection.get())) return;
  reject();
  auto watch = loop_.watch(connection.get(), EPOLLIN, [this](std::uint32_t) { on_readable(); });
  if (!watch.ok()) return;
  incoming_ = std::move(connection);
  incoming_watch_ = std::move(*watch);
}

void HandoverListener::reject() {
  incoming_watch_.end();
  incoming_.reset();
  link_.reset();
}

void HandoverListener::on_readable() {
  if (!link_) {
    auto head = receive_head(incoming_.get());
    if (!head) return reject();
    missing_ = head->first.received;
    link_ = std::move(head->second);
  }
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  while (missing_ > 0) {
    const std::size_t wanted = std::min<std::size_t>(missing_, buffer.size());
    const ssize_t got = ::recv(incoming_.get(), buffer.data(), wanted, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return reject();
    link_->received.append(buffer.data(), static_cast<std::size_t>(got));
    missing_ -= static_cast<std::uint32_t>(got);
  }

  incoming_watch_.end();
  release_messenger(0);
  UniqueFd messenger = std::move(incoming_);
  auto watch = loop_.watch(messenger.get(), EPOLLIN, [this](std::uint32_t) {
    messenger_watch_.end();
    messenger_.reset();
    on_messenger_gone_();
  });
  HandedLink link = *std::exchange(link_, std::nullopt);
  if (!watch.ok()) return;
  messenger_ = std::move(messenger);
  messenger_watch_ = std::move(*watch);
  on_link_(std::move(link));
}

void HandoverListener::release_messenger(int exit_code) {
  messenger_watch_.end();
  if (!messenger_) return;
  const auto code = static_cast<char>(exit_code);
  // A messenger that has gone needs none.
  static_cast<void>(::send(messenger_.get(), &code, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
  messenger_.reset();
}

Result<UniqueFd> hand_over(const std::string& name, const HandedLink& link, TimePoint deadline) {
  UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress where(name);
  if (!connection || ::connect(connection.get(), where.get(), where.size) != 0 ||
      !is_own_process(connection.get())) {
    return Status(Code::not_found, "no agent of this job holds workers on this host");
  }

  HeadMessage sent;
  sent.head = {static_cast<std::uint32_t>(link.received.size()), link.parent};
  cmsghdr* const about = CMSG_FIRSTHDR(&sent.message);
  about->cmsg_level = SOL_SOCKET;
  about->cmsg_type = SCM_RIGHTS;
  about->cmsg_len = CMSG_LEN(kLinkFds * sizeof(int));
  const std::array<int, kLinkFds> fds{link.in.get(), link.out.get(), link.log.get()};
  std::memcpy(CMSG_DATA(about), fds.data(), sizeof(fds));
  if (::sendmsg(connection.get(), &sent.message, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof(Head))) {
    return Status::from_errno("pass the link on", errno);
  }
  HVD_RETURN_IF_ERROR(
      send_all(connection.get(), link.received, deadline).with_context("pass the link on"));
  return connection;
}

std::optional<int> exit_code_from(int connection) {
  char code = 0;
  const ssize_t got = ::recv(connection, &code, 1, MSG_DONTWAIT);
  if (got == 1) return static_cast<unsigned char>(code);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  return 1;  // it was killed
}

void forget_standard_error() {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null) ::dup2(null.get(), STDERR_FILENO);
}

}  // namespace hvd::agent
