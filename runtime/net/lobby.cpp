#include "runtime/net/lobby.h"

#include <algorithm>
#include <sys/socket.h>

#include "base/log.h"

namespace hvd::runtime {
namespace {

constexpr std::chrono::milliseconds kRest{50};  // of a listener, when no descriptor is left

}  // namespace

Result<SocketAddress> Lobby::listen(const SocketAddress& where) {
  auto listener = listen_tcp(where);
  HVD_RETURN_IF_ERROR(listener.status());
  HVD_RETURN_IF_ERROR(attend(std::move(*listener)));
  return local_address(listener_.get());
}

Status Lobby::attend(UniqueFd listener) {
  HVD_RETURN_IF_ERROR(set_nonblocking(listener.get(), true));
  listener_ = std::move(listener);
  poller_.watch(listener_.get());
  return {};
}

void Lobby::close() {
  while (!guests_.empty()) show_out(guests_.begin()->first);
  if (listener_) poller_.forget(listener_.get());
  listener_.reset();
}

bool Lobby::knows(int fd) const {
  return (listener_ && fd == listener_.get()) || guests_.contains(fd);
}

void Lobby::show_out(int fd) {
  poller_.forget(fd);
  pending_.remove(fd);
  guests_.erase(fd);
}

void Lobby::on_accept_failed(const Status& why, TimePoint now) {
  if (why.code() == Code::deadline_exceeded) return;  // it is gone already
  if (const auto told = warning_.count(now)) {
    HVD_LOG(warning, purpose_ << ": " << *told
                              << " times a connection could not be accepted: " << why.message());
  }
  if (const auto oldest = pending_.evict()) return show_out(*oldest);
  poller_.ignore(listener_.get());
  rests_until_ = now + kRest;
}

void Lobby::welcome_guest(TimePoint now) {
  auto fd = accept_tcp(listener_.get(), now);
  if (!fd.ok()) return on_accept_failed(fd.status(), now);
  if (const auto oldest = pending_.add(fd->get(), origin_of_peer(fd->get()), now)) {
    show_out(*oldest);
  }
  const int number = fd->get();
  Guest guest{std::make_unique<Connection>(std::move(*fd), kMaxHandshakeFrame),
              HandshakeAcceptor(token_, purpose_, self_)};
  if (!guest.connection->send(guest.handshake.challenge()).ok()) {
    pending_.remove(number);
    return;
  }
  poller_.watch(number);
  guests_.emplace(number, std::move(guest));
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the map owns it

std::optional<Lobby::Arrival> Lobby::handle(const Poller::Event& event, TimePoint now) {
  if (event.fd == listener_.get()) {
    welcome_guest(now);
    return std::nullopt;
  }
  auto& guest = guests_.at(event.fd);
  const Status received = guest.connection->receive(kMaxHandshakeFrame);
  auto frame = guest.connection->next();
  if (!frame.ok()) {
    HVD_LOG(info, purpose_ << ": somebody connected and sent no handshake");
    show_out(event.fd);
    return std::nullopt;
  }
  if (!frame->has_value()) {
    if (!received.ok()) show_out(event.fd);
    return std::nullopt;
  }
  std::string reply;
  auto identity = guest.handshake.accept(**frame, reply);
  const bool sent = guest.connection->send(reply).ok();
  if (!identity.ok() || !sent) {
    HVD_LOG(info, purpose_ << ": refused a connection: " << identity.status().to_string());
    show_out(event.fd);
    return std::nullopt;
  }
  auto connection = std::move(guest.connection);
  pending_.remove(event.fd);
  guests_.erase(event.fd);
  connection->trust(kDefaultMaxFrame);
  return Arrival{identity->name, std::move(connection)};
}

TimePoint Lobby::expire(TimePoint now) {
  while (const auto late = pending_.take_expired(now)) show_out(*late);
  if (rests_until_ <= now) {
    rests_until_ = kNever;
    if (listener_) poller_.watch(listener_.get());
  }
  return std::min(pending_.deadline(), rests_until_);
}

}  // namespace hvd::runtime
