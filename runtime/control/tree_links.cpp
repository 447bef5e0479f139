#include "runtime/control/tree_links.h"

#include <algorithm>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "base/log.h"
#include "base/machine/own_time.h"
#include "base/text.h"
#include "runtime/negotiation/messages.h"
#include "runtime/net/keepalive.h"
#include "runtime/net/member_connector.h"
#include "runtime/net/tcp_info.h"

namespace hvd::runtime {
namespace {

constexpr int kSignsOfLife = 4;  // in the time that a neighbour may be silent

std::string handshake_name(int rank) { return cat("rank ", rank); }

}  // namespace

Status TreeLinks::open() {
  if (children().empty()) return {};
  acceptor_.emplace(poller_, spec_.token,
                    HandshakeIdentity{handshake_name(spec_.rank), spec_.generation},
                    spec_.config.handshake_timeout, kTreePurpose, children().size());
  const auto& self = spec_.members[static_cast<std::size_t>(spec_.rank)];
  auto where = acceptor_->listen(self.address, spec_.config.ports);
  HVD_RETURN_IF_ERROR(where.status().with_context(cat("rank ", spec_.rank, ", for other ranks")));
  address_ = cat(where->port);
  return {};
}

Status TreeLinks::join_parent(const std::string& address, TimePoint deadline) {
  const auto port = parse_number<std::uint16_t>(address);
  if (!port) {
    return {Code::data_loss, cat("rank ", parent(), " published no valid port")};
  }
  const SocketAddress where{spec_.members[static_cast<std::size_t>(parent())].address, *port};
  auto socket =
      connect_and_authenticate(where, spec_.token, {handshake_name(spec_.rank), spec_.generation},
                               {handshake_name(parent()), spec_.generation}, deadline,
                               spec_.interrupt ? spec_.interrupt->descriptor() : -1);
  HVD_RETURN_IF_ERROR(socket.status());
  add(parent(), std::make_unique<Connection>(std::move(socket->fd), kDefaultMaxFrame),
      socket->keys);
  return {};
}

void TreeLinks::add(int rank, std::unique_ptr<Connection> connection, const SessionKeys& keys) {
  connection->protect(keys);
  const int fd = connection->fd();
  enable_keepalive(fd, spec_.config.collective_timeout);
  peers_[rank].connection = std::move(connection);
  rank_of_fd_[fd] = rank;
  poller_.watch_edge_triggered(fd);
}

bool TreeLinks::complete() const {
  if (has_parent() && !has(parent())) return false;
  return std::all_of(children().begin(), children().end(), [this](int rank) { return has(rank); });
}

std::optional<std::chrono::microseconds> TreeLinks::round_trip_to_parent() const {
  const auto peer = peers_.find(parent());
  if (!is_on_other_host(parent()) || peer == peers_.end()) return std::nullopt;
  return shortest_round_trip(peer->second.connection->fd());
}

std::optional<TreeLinks::Received> TreeLinks::handle(const Poller::Event& event, TimePoint now) {
  if (acceptor_ && acceptor_->owns(event.fd)) {
    if (auto arrival = acceptor_->handle(event, now)) add_child(std::move(*arrival));
    return std::nullopt;
  }

  const auto peer = rank_of_fd_.find(event.fd);
  if (peer == rank_of_fd_.end()) return std::nullopt;
  auto& neighbour = peers_.at(peer->second);
  auto& connection = *neighbour.connection;

  if (event.writable) {
    // An error is found by the next read.
    if (const Status flushed = connection.flush(); !flushed.ok() || !connection.has_unsent()) {
      poller_.watch_edge_triggered(event.fd);
    }
  }

  if (!event.readable) return std::nullopt;
  Received received{peer->second, {}, connection.receive(), false};
  take_frames(peer->second, neighbour, received);
  return received;
}

std::vector<TreeLinks::Received> TreeLinks::read_shm_messages() {
  std::vector<Received> all;
  mailbox_->note_new();
  for (auto& [rank, neighbour] : peers_) {
    if (!mailbox_->look(rank)) continue;
    Received received{rank, {}, {}, false};
    take_frames(rank, neighbour, received);
    if (!received.frames.empty() || received.is_malformed) all.push_back(std::move(received));
  }
  return all;
}

// A message in shared memory is visible before anything that was sent after it: so bytes that came
// over the connection are older than messages that are not there yet.
void TreeLinks::take_frames(int rank, Peer& neighbour, Received& received) {
  const auto malformed = [&received](const Status& how) {
    received.lost = how;
    received.is_malformed = true;
  };

  for (;;) {
    const auto message = mailbox_ ? mailbox_->look(rank) : std::nullopt;
    if (message && message->after <= neighbour.taken) {
      FrameDecoder frames(SpscRing::kMaxBytes);
      frames.feed(message->bytes);
      mailbox_->take(rank);
      auto frame = frames.next();
      if (!frame.ok()) return malformed(frame.status());
      if (!frame->has_value() || frames.mid_frame()) {
        return malformed({Code::data_loss, "a message in shared memory is not a whole frame"});
      }
      received.frames.push_back(std::move(**frame));
      continue;
    }

    auto frame = neighbour.connection->next();
    if (!frame.ok()) return malformed(frame.status());
    if (!frame->has_value()) return;
    neighbour.taken += kFrameHeaderSize + (*frame)->payload.size();
    const auto kind = static_cast<Message>((*frame)->kind);
    if (kind == Message::alive || (mailbox_ && kind == Message::shm_notification)) continue;
    received.frames.push_back(std::move(**frame));
  }
}

void TreeLinks::add_child(MemberAcceptor::Arrival arrival) {
  for (const int rank : children()) {
    if (arrival.name != handshake_name(rank) || has(rank)) continue;
    add(rank, std::move(arrival.connection), arrival.keys);
    const auto here = [this](int child) { return has(child); };
    if (std::all_of(children().begin(), children().end(), here)) acceptor_.reset();
    return;
  }
  HVD_LOG(warning, "refused a second or unexpected member, \"" << arrival.name << '"');
  poller_.forget(arrival.connection->fd());
}

bool TreeLinks::is_on_other_host(int rank) const {
  const auto host = [this](int of) -> const std::string& {
    return spec_.members[static_cast<std::size_t>(of)].host;
  };
  return host(rank) != host(spec_.rank);
}

// The kernel knows when data came, so that a neighbour is not lost because this rank was late to
// read. One that has said nothing yet may still be connecting to its own parent.
std::vector<TreeLinks::Received> TreeLinks::keep_alive(TimePoint now) {
  std::vector<Received> lost;
  const Duration limit = spec_.config.control_timeout;
  if (limit == Duration::zero()) next_sign_of_life_ = kNever;
  if (now < next_sign_of_life_) return lost;
  next_sign_of_life_ = now + limit / kSignsOfLife;

  for (auto& [rank, neighbour] : peers_) {
    if (!is_on_other_host(rank)) continue;
    if (neighbour.sent == neighbour.sent_before) send_bytes(neighbour, encode_alive());
    neighbour.sent_before = neighbour.sent;
    const bool may_connect = neighbour.taken == 0;
    const Duration allowed = limit + (may_connect ? spec_.config.connect_timeout : Duration());
    const auto silent = time_since_data(neighbour.connection->fd());
    if (!silent || *silent - stopped_since(now - *silent) <= allowed) continue;
    lost.push_back(
        {rank,
         {},
         {Code::unavailable, cat("its connection stands, but nothing has come for ",
                                 duration_text(std::chrono::duration<double>(*silent).count()))},
         false});
  }
  return lost;
}

void TreeLinks::send(int rank, const std::string& bytes, bool may_wait) {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return;
  auto& neighbour = peer->second;
  const auto left =
      mailbox_ ? mailbox_->send(rank, neighbour.sent, bytes, may_wait) : ShmMailbox::SendResult::no;

  switch (left) {
    case ShmMailbox::SendResult::no:
      send_bytes(neighbour, bytes);
      break;
    case ShmMailbox::SendResult::seen:
      break;
    case ShmMailbox::SendResult::unseen:
      if (may_wait) {
        if (!neighbour.unseen) neighbour.unseen = Clock::now();
      } else {
        send_bytes(neighbour, encode_shm_notification());
      }
      break;
  }
}

void TreeLinks::notify_unseen(Duration ago) {
  for (auto& [rank, neighbour] : peers_) {
    if (!neighbour.unseen || Clock::now() - *neighbour.unseen < ago) continue;
    neighbour.unseen.reset();
    if (mailbox_->is_unseen(rank)) send_bytes(neighbour, encode_shm_notification());
  }
}

void TreeLinks::send_bytes(Peer& neighbour, std::string_view bytes) {
  auto& connection = *neighbour.connection;
  neighbour.sent += bytes.size();
  // If the peer is gone, the next read finds out, and why.
  if (connection.send(bytes).ok() && connection.has_unsent()) {
    poller_.watch_edge_triggered(connection.fd(), true);
  }
}

void TreeLinks::send_to_children(const std::string& bytes, bool may_wait) {
  for (const int rank : children()) send(rank, bytes, may_wait);
}

void TreeLinks::send_to_all(const std::string& bytes) {
  for (const auto& [rank, neighbour] : peers_) send(rank, bytes);
}

std::size_t TreeLinks::unsent(int rank) const {
  const auto peer = peers_.find(rank);
  return peer == peers_.end() ? 0 : peer->second.connection->unsent();
}

void TreeLinks::drop(int rank) {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return;
  poller_.forget(peer->second.connection->fd());
  rank_of_fd_.erase(peer->second.connection->fd());
  peers_.erase(peer);
}

void TreeLinks::linger(bool all_left) {
  acceptor_.reset();
  const auto until = Clock::now() + std::chrono::milliseconds(200);

  for (const auto& [rank, neighbour] : peers_) {
    const auto& connection = neighbour.connection;
    while (connection->has_unsent()) {
      if (!wait_for(connection->fd(), POLLOUT, until).ok() || !connection->flush().ok()) break;
    }
    if (all_left) continue;
    poller_.watch_edge_triggered(connection->fd());
    ::shutdown(connection->fd(), SHUT_WR);
  }

  while (!all_left && !peers_.empty() && Clock::now() < until) {
    for (const auto& event : poller_.wait(until)) {
      const auto peer = rank_of_fd_.find(event.fd);
      if (peer == rank_of_fd_.end()) continue;
      const int rank = peer->second;
      if (!peers_.at(rank).connection->receive().ok()) drop(rank);
    }
  }

  peers_.clear();
  rank_of_fd_.clear();
}

}  // namespace hvd::runtime
