#include "runtime/lobby.h"

#include <sys/socket.h>

#include "base/log.h"

namespace hvd::runtime {

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
  guests_.erase(fd);
}

void Lobby::welcome_guest(TimePoint now) {
  auto fd = accept_tcp(listener_.get(), now);
  if (!fd.ok()) return;
  if (guests_.size() >= max_guests_) {
    // The one who has been silent longest makes room.
    auto oldest = guests_.begin();
    for (auto guest = guests_.begin(); guest != guests_.end(); ++guest) {
      if (guest->second.until < oldest->second.until) oldest = guest;
    }
    show_out(oldest->first);
  }
  const int number = fd->get();
  Guest guest{std::make_unique<Connection>(std::move(*fd), kMaxHandshakeFrame),
              HandshakeAcceptor(token_, purpose_, self_), now + handshake_timeout_};
  if (!guest.connection->send(guest.handshake.challenge()).ok()) return;
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
  guests_.erase(event.fd);
  connection->trust(kDefaultMaxFrame);
  return Arrival{identity->name, std::move(connection)};
}

TimePoint Lobby::expire(TimePoint now) {
  TimePoint next = kNever;
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto current = guest++;
    if (current->second.until <= now) {
      show_out(current->first);
    } else {
      next = std::min(next, current->second.until);
    }
  }
  return next;
}

}  // namespace hvd::runtime
