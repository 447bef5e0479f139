#include "runtime/net/member_acceptor.h"

#include <algorithm>
#include <sys/socket.h>

#include "base/log.h"

namespace hvd::runtime {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{50};  // when no descriptor is left
// Pauses are counted, not timed: this process may have been stopped meanwhile.
constexpr int kMostPauses = 20;

}  // namespace

Result<SocketAddress> MemberAcceptor::listen(const std::string& address, const ListenPorts& ports) {
  auto listener = listen_tcp({address, 0}, ports);
  HVD_RETURN_IF_ERROR(listener.status());
  HVD_RETURN_IF_ERROR(adopt(std::move(*listener)));
  return local_address(listener_.get());
}

Status MemberAcceptor::adopt(UniqueFd listener) {
  HVD_RETURN_IF_ERROR(set_nonblocking(listener.get(), true));
  listener_ = std::move(listener);
  poller_.watch(listener_.get());
  return {};
}

void MemberAcceptor::close() {
  while (!candidates_.empty()) drop(candidates_.begin()->first);
  if (listener_) poller_.forget(listener_.get());
  listener_.reset();
}

bool MemberAcceptor::owns(int fd) const {
  return (listener_ && fd == listener_.get()) || candidates_.contains(fd);
}

void MemberAcceptor::drop(int fd) {
  poller_.forget(fd);
  pending_.remove(fd);
  candidates_.erase(fd);
}

void MemberAcceptor::on_accept_failed(const Status& why, TimePoint now) {
  if (why.code() == Code::deadline_exceeded) return;  // the peer is gone already
  if (const auto told = warning_.count(now)) {
    HVD_LOG(warning, purpose_ << ": " << *told
                              << " times a connection could not be accepted: " << why.message());
  }
  if (const auto oldest = pending_.evict()) return drop(*oldest);
  poller_.ignore(listener_.get());
  paused_until_ = now + kAcceptPause;
  ++pauses_;
  last_error_ = why;
}

Status MemberAcceptor::cannot_accept() const {
  return pauses_ < kMostPauses ? Status() : last_error_;
}

void MemberAcceptor::accept_candidate(TimePoint now) {
  auto fd = accept_tcp(listener_.get(), now);
  if (!fd.ok()) return on_accept_failed(fd.status(), now);
  pauses_ = 0;
  if (const auto oldest = pending_.add(fd->get(), origin_of_peer(fd->get()), now)) {
    drop(*oldest);
  }

  const int number = fd->get();
  Candidate candidate{std::make_unique<Connection>(std::move(*fd), kMaxHandshakeFrame),
                      HandshakeAcceptor(token_, purpose_, self_)};
  if (!candidate.connection->send(candidate.handshake.challenge()).ok()) {
    pending_.remove(number);
    return;
  }

  poller_.watch(number);
  candidates_.emplace(number, std::move(candidate));
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the map owns it

std::optional<MemberAcceptor::Arrival> MemberAcceptor::handle(const Poller::Event& event,
                                                              TimePoint now) {
  if (event.fd == listener_.get()) {
    accept_candidate(now);
    return std::nullopt;
  }

  auto& candidate = candidates_.at(event.fd);
  const Status received = candidate.connection->receive(kMaxHandshakeFrame);
  auto frame = candidate.connection->next();
  if (!frame.ok()) {
    HVD_LOG(info, purpose_ << ": a peer connected and sent no handshake");
    drop(event.fd);
    return std::nullopt;
  }
  if (!frame->has_value()) {
    if (!received.ok()) drop(event.fd);
    return std::nullopt;
  }

  std::string reply;
  auto identity = candidate.handshake.accept(**frame, reply);
  const bool sent = candidate.connection->send(reply).ok();
  if (!identity.ok() || !sent) {
    HVD_LOG(info, purpose_ << ": refused a connection: " << identity.status().to_string());
    drop(event.fd);
    return std::nullopt;
  }

  auto connection = std::move(candidate.connection);
  pending_.remove(event.fd);
  candidates_.erase(event.fd);
  connection->trust(kDefaultMaxFrame);
  return Arrival{std::move(identity->name), std::move(connection), std::move(identity->keys)};
}

TimePoint MemberAcceptor::expire(TimePoint now) {
  while (const auto late = pending_.take_expired(now)) drop(*late);
  if (paused_until_ <= now) {
    paused_until_ = kNever;
    if (listener_) poller_.watch(listener_.get());
  }
  return std::min(pending_.deadline(), paused_until_);
}

}  // namespace hvd::runtime
