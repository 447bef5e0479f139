#include "runtime/control/tree_links.h"

#include <algorithm>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "runtime/negotiation/messages.h"
#include "runtime/net/member_link.h"
#include "runtime/net/silence.h"

namespace hvd::runtime {
namespace {

std::string handshake_name(int rank) { return cat("rank ", rank); }

}  // namespace

Status TreeLinks::open() {
  if (children().empty()) return {};
  lobby_.emplace(poller_, spec_.token,
                 HandshakeIdentity{handshake_name(spec_.rank), spec_.generation},
                 spec_.config.handshake_timeout, kTreePurpose, children().size());
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
  add(parent(), std::make_unique<Connection>(std::move(*fd), kDefaultMaxFrame));
  return {};
}

void TreeLinks::add(int rank, std::unique_ptr<Connection> connection) {
  const int fd = connection->fd();
  watch_for_silence(fd, spec_.config.collective_timeout);
  peers_[rank].connection = std::move(connection);
  rank_of_fd_[fd] = rank;
  poller_.watch_news(fd);
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
  auto& link = peers_.at(peer->second);
  auto& connection = *link.connection;
  if (event.writable) {
    // An error shows when we read.
    if (const Status flushed = connection.flush(); !flushed.ok() || !connection.has_unsent()) {
      poller_.watch_news(event.fd);
    }
  }
  if (!event.readable) return std::nullopt;
  Received received{peer->second, {}, connection.receive(), false};
  take_frames(peer->second, link, received);
  return received;
}

std::vector<TreeLinks::Received> TreeLinks::read_letters() {
  std::vector<Received> all;
  mail_->note_news();
  for (auto& [rank, link] : peers_) {
    if (!mail_->look(rank)) continue;
    Received received{rank, {}, {}, false};
    take_frames(rank, link, received);
    if (!received.frames.empty() || received.lies) all.push_back(std::move(received));
  }
  return all;
}

// A letter is there before anything that was sent after it: what came over the connection is older
// than letters that are not there yet.
void TreeLinks::take_frames(int rank, Link& link, Received& received) {
  const auto lies = [&received](const Status& how) {
    received.lost = how;
    received.lies = true;
  };
  for (;;) {
    const auto letter = mail_ ? mail_->look(rank) : std::nullopt;
    if (letter && letter->after <= link.taken) {
      FrameDecoder frames(LetterBox::kMostBytes);
      frames.feed(letter->bytes);
      mail_->take(rank);
      auto frame = frames.next();
      if (!frame.ok()) return lies(frame.status());
      if (!frame->has_value() || frames.mid_frame()) {
        return lies({Code::data_loss, "a letter that is no frame"});
      }
      received.frames.push_back(std::move(**frame));
      continue;
    }
    auto frame = link.connection->next();
    if (!frame.ok()) return lies(frame.status());
    if (!frame->has_value()) return;
    link.taken += kFrameHeaderSize + (*frame)->payload.size();
    if (mail_ && (*frame)->kind == static_cast<std::uint16_t>(Message::letters)) continue;
    received.frames.push_back(std::move(**frame));
  }
}

void TreeLinks::welcome(Lobby::Arrival arrival) {
  for (const int rank : children()) {
    if (arrival.name != handshake_name(rank) || has(rank)) continue;
    add(rank, std::move(arrival.connection));
    const auto here = [this](int child) { return has(child); };
    if (std::all_of(children().begin(), children().end(), here)) lobby_.reset();
    return;
  }
  HVD_LOG(warning, "refused a second or unexpected member, \"" << arrival.name << '"');
  poller_.forget(arrival.connection->fd());
}

void TreeLinks::send(int rank, const std::string& bytes, bool may_wait) {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return;
  auto& link = peer->second;
  const auto left = mail_ ? mail_->leave(rank, link.sent, bytes, may_wait) : HostMail::Left::no;
  switch (left) {
    case HostMail::Left::no:
      send_bytes(link, bytes);
      break;
    case HostMail::Left::seen:
      break;
    case HostMail::Left::unseen:
      if (may_wait) {
        if (!link.unseen) link.unseen = Clock::now();
      } else {
        send_bytes(link, encode_letters());
      }
      break;
  }
}

void TreeLinks::announce_letters(Duration ago) {
  for (auto& [rank, link] : peers_) {
    if (!link.unseen || Clock::now() - *link.unseen < ago) continue;
    link.unseen.reset();
    if (mail_->is_unseen(rank)) send_bytes(link, encode_letters());
  }
}

void TreeLinks::send_bytes(Link& link, std::string_view bytes) {
  auto& connection = *link.connection;
  link.sent += bytes.size();
  // If the peer is gone, reading says so, and why.
  if (connection.send(bytes).ok() && connection.has_unsent()) {
    poller_.watch_news(connection.fd(), true);
  }
}

void TreeLinks::send_to_children(const std::string& bytes, bool may_wait) {
  for (const int rank : children()) send(rank, bytes, may_wait);
}

void TreeLinks::send_to_all(const std::string& bytes) {
  for (const auto& [rank, link] : peers_) send(rank, bytes);
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

void TreeLinks::linger(bool part_in_peace) {
  lobby_.reset();
  const auto until = Clock::now() + std::chrono::milliseconds(200);
  for (const auto& [rank, link] : peers_) {
    const auto& connection = link.connection;
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
      if (!peers_.at(rank).connection->receive().ok()) drop(rank);
    }
  }
  peers_.clear();
  rank_of_fd_.clear();
}

}  // namespace hvd::runtime
