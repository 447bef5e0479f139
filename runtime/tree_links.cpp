#include "runtime/tree_links.h"

#include <algorithm>
#include <poll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/member_link.h"
#include "runtime/messages.h"
#include "runtime/silence.h"

namespace hvd::runtime {
namespace {

std::string handshake_name(int rank) { return cat("rank ", rank); }

}  // namespace

Status TreeLinks::open() {
  if (children().empty()) return {};
  lobby_.emplace(poller_, spec_.token,
                 HandshakeIdentity{handshake_name(spec_.rank), spec_.generation},
                 spec_.config.handshake_timeout, kPurpose);
  const auto& self = spec_.members[static_cast<std::size_t>(spec_.rank)];
  auto where = lobby_->listen({self.address, 0});
  HVD_RETURN_IF_ERROR(where.status().with_context(cat("rank ", spec_.rank, ", for other ranks")));
  address_ = cat(where->port);
  return {};
}

Status TreeLinks::join_parent(const std::string& address, TimePoint deadline) {
  const auto port = parse_number<std::uint16_t>(address);
  if (!port) {
    return {Code::data_loss, cat("rank ", parent(), " gave no port that one can connect to")};
  }
  const SocketAddress where{spec_.members[static_cast<std::size_t>(parent())].address, *port};
  auto fd = connect_and_prove(where, spec_.token, {handshake_name(spec_.rank), spec_.generation},
                              {handshake_name(parent()), spec_.generation}, deadline,
                              spec_.interrupt ? spec_.interrupt->descriptor() : -1);
  HVD_RETURN_IF_ERROR(fd.status());
  const int number = fd->get();
  watch_for_silence(number, spec_.config.collective_timeout);
  peers_.emplace(parent(), std::make_unique<Connection>(std::move(*fd), kDefaultMaxFrame));
  rank_of_fd_[number] = parent();
  poller_.watch_news(number);
  return {};
}

bool TreeLinks::complete() const {
  if (has_parent() && !has(parent())) return false;
  return std::all_of(children().begin(), children().end(), [this](int rank) { return has(rank); });
}

std::optional<TreeLinks::Received> TreeLinks::handle(const Poller::Event& event, TimePoint now) {
  if (lobby_ && lobby_->knows(event.fd)) {
    if (auto arrival = lobby_->handle(event, now)) welcome(std::move(*arrival));
    return std::nullopt;
  }
  const auto peer = rank_of_fd_.find(event.fd);
  if (peer == rank_of_fd_.end()) return std::nullopt;
  auto& connection = *peers_.at(peer->second);
  if (event.writable) {
    // An error shows when we read.
    if (const Status flushed = connection.flush(); !flushed.ok() || !connection.has_unsent()) {
      poller_.watch_news(event.fd);
    }
  }
  if (!event.readable) return std::nullopt;
  Received received{peer->second, {}, connection.receive(), false};
  for (;;) {
    auto frame = connection.next();
    if (!frame.ok()) {
      received.lost = frame.status();
      received.lies = true;
      break;
    }
    if (!frame->has_value()) break;
    received.frames.push_back(std::move(**frame));
  }
  return received;
}

void TreeLinks::welcome(Lobby::Arrival arrival) {
  for (const int rank : children()) {
    if (arrival.name != handshake_name(rank) || has(rank)) continue;
    const int fd = arrival.connection->fd();
    watch_for_silence(fd, spec_.config.collective_timeout);
    peers_.emplace(rank, std::move(arrival.connection));
    rank_of_fd_[fd] = rank;
    poller_.watch_news(fd);
    const auto here = [this](int child) { return has(child); };
    if (std::all_of(children().begin(), children().end(), here)) lobby_.reset();
    return;
  }
  HVD_LOG(warning, "refused a second or unexpected member, \"" << arrival.name << '"');
  poller_.forget(arrival.connection->fd());
}

void TreeLinks::send(int rank, const std::string& bytes) {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return;
  auto& connection = *peer->second;
  // If the peer is gone, reading says so, and why.
  if (connection.send(bytes).ok() && connection.has_unsent()) {
    poller_.watch_news(connection.fd(), true);
  }
}

void TreeLinks::send_to_children(const std::string& bytes) {
  for (const int rank : children()) send(rank, bytes);
}

void TreeLinks::send_to_all(const std::string& bytes) {
  for (const auto& [rank, connection] : peers_) send(rank, bytes);
}

std::size_t TreeLinks::unsent(int rank) const {
  const auto peer = peers_.find(rank);
  return peer == peers_.end() ? 0 : peer->second->unsent();
}

void TreeLinks::drop(int rank) {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return;
  poller_.forget(peer->second->fd());
  rank_of_fd_.erase(peer->second->fd());
  peers_.erase(peer);
}

void TreeLinks::linger(bool part_in_peace) {
  lobby_.reset();
  const auto until = Clock::now() + std::chrono::milliseconds(200);
  for (const auto& [rank, connection] : peers_) {
    while (connection->has_unsent()) {
      if (!wait_for(connection->fd(), POLLOUT, until).ok() || !connection->flush().ok()) break;
    }
    if (part_in_peace) continue;
    poller_.watch_news(connection->fd());
    ::shutdown(connection->fd(), SHUT_WR);
  }
  while (!part_in_peace && !peers_.empty() && Clock::now() < until) {
    for (const auto& event : poller_.wait(until)) {
      const auto peer = rank_of_fd_.find(event.fd);
      if (peer == rank_of_fd_.end()) continue;
      const int rank = peer->second;
      if (!peers_.at(rank)->receive().ok()) drop(rank);
    }
  }
  peers_.clear();
  rank_of_fd_.clear();
}

}  // namespace hvd::runtime
