#include "runtime/control_loop.h"

#include <algorithm>
#include <poll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/member_link.h"
#include "runtime/threads.h"

namespace hvd::runtime {
namespace {

std::vector<std::string> hosts_of(const WorldSpec& spec) {
  std::vector<std::string> hosts;
  hosts.reserve(spec.members.size());
  for (const auto& member : spec.members) hosts.push_back(member.host);
  return hosts;
}

std::string handshake_name(int rank) { return cat("rank ", rank); }

}  // namespace

ControlLoop::ControlLoop(const WorldSpec& spec, TensorQueue& queue, Verdict& verdict,
                         Executor& executor, std::function<void()> on_failure)
    : spec_(spec),
      queue_(queue),
      verdict_(verdict),
      executor_(executor),
      on_failure_(std::move(on_failure)) {
  if (is_coordinator()) {
    coordinator_.emplace(hosts_of(spec), spec.config.fusion_threshold, spec.config.cycle_time);
  }
}

std::string ControlLoop::who(int rank) const {
  const auto& member = spec_.members[static_cast<std::size_t>(rank)];
  return cat("rank ", rank, " (", member.worker, ") on host ", member.host);
}

Failure ControlLoop::lost(int rank, const Status& how) const {
  const auto& host = spec_.members[static_cast<std::size_t>(rank)].host;
  return {Status(Code::unavailable, cat(who(rank), " is gone: ", how.message())), rank, host};
}

Status ControlLoop::open() {
  HVD_RETURN_IF_ERROR(poller_.open());
  if (!is_coordinator() || spec_.size() == 1) return {};
  lobby_.emplace(poller_, spec_.token, HandshakeIdentity{handshake_name(0), spec_.generation},
                 spec_.config.handshake_timeout);
  auto where = lobby_->listen({spec_.members.front().address, 0});
  HVD_RETURN_IF_ERROR(where.status().with_context("rank 0, for the other ranks"));
  address_ = cat(where->port);
  return {};
}

Status ControlLoop::start(const std::string& coordinator, TimePoint deadline) {
  SocketAddress where{spec_.members.front().address, 0};
  if (!is_coordinator()) {
    const auto port = parse_number<std::uint16_t>(coordinator);
    if (!port) return {Code::data_loss, "rank 0 gave no port that one can connect to"};
    where.port = *port;
  }
  forming_until_ = deadline;
  thread_ = start_thread("hvd-control", [this, where, deadline] {
    if (is_coordinator()) {
      if (spec_.size() == 1) set_formed();
    } else if (const Status joined = join_coordinator(where, deadline); joined.ok()) {
      set_formed();
    } else {
      enter_failure(
          {joined.with_context(cat("connect to ", who(0))), 0, spec_.members.front().host});
    }
    loop();
  });
  return {};
}

Status ControlLoop::join_coordinator(const SocketAddress& where, TimePoint deadline) {
  auto fd = connect_and_prove(where, spec_.token, {handshake_name(spec_.rank), spec_.generation},
                              {handshake_name(0), spec_.generation}, deadline);
  HVD_RETURN_IF_ERROR(fd.status());
  const int number = fd->get();
  peers_.emplace(0, std::make_unique<Connection>(std::move(*fd), kDefaultMaxFrame));
  rank_of_fd_[number] = 0;
  poller_.watch(number);
  return {};
}

Failure ControlLoop::wait_formed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return formed_ || verdict_.known(); });
  return verdict_.get();
}

void ControlLoop::suspect(const Status& why) {
  const std::lock_guard lock(mutex_);
  suspicions_.push_back(why);
  wake();
}

void ControlLoop::fail(const Failure& why) {
  const std::lock_guard lock(mutex_);
  failures_.push_back(why);
  wake();
}

Failure ControlLoop::leave(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  wake();
  const auto decided = [this] { return left_ || verdict_.known(); };
  if (!changed_.wait_until(lock, deadline, decided)) {
    return Status(Code::deadline_exceeded, "the other ranks did not call shutdown() in time");
  }
  return left_ ? Failure() : verdict_.get();
}

void ControlLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void ControlLoop::set_formed() {
  const std::lock_guard lock(mutex_);
  formed_ = true;
  forming_until_ = kNever;
  changed_.notify_all();
}

void ControlLoop::loop() {
  for (;;) {
    auto now = Clock::now();
    take_commands();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    drain_queue(now);
    negotiate(now);
    check_left();
    const auto deadline = check_timers(now);
    const auto events = poller_.wait(deadline);
    now = Clock::now();
    for (const auto& event : events) handle(event, now);
  }
  linger();
}

void ControlLoop::take_commands() {
  std::vector<Failure> failures;
  std::vector<Status> suspicions;
  bool stopping = false;
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    failures.swap(failures_);
    suspicions.swap(suspicions_);
    stopping = stopping_;
    leaving = leaving_;
  }
  for (const auto& failure : failures) enter_failure(failure);
  for (const auto& why : suspicions) {
    suspect_now({why.with_context(cat("the data connections of ", who(spec_.rank))), -1, {}},
                Clock::now());
  }
  if (leaving && !leave_sent_ && !verdict_.known()) {
    leave_sent_ = true;
    if (is_coordinator()) {
      coordinator_->leave(0, Clock::now());
    } else {
      send(0, encode_empty(Message::leave));
    }
  }
  if (!stopping || left_) return;
  // Members that said that they leave may just go; the coordinator cannot be done without.
  if (leave_sent_ && !is_coordinator()) return;
  const auto why = leave_sent_ ? " has called shutdown(), and waits for the others no longer"
                               : " has left the world without shutdown()";
  enter_failure({Status(Code::aborted, cat(who(spec_.rank), why)), spec_.rank,
                 spec_.members[static_cast<std::size_t>(spec_.rank)].host});
}

void ControlLoop::drain_queue(TimePoint now) {
  if (!formed_ || verdict_.known()) return;
  auto requests = queue_.drain();
  if (requests.empty()) return;
  if (!is_coordinator()) {
    send(0, encode_requests(requests));
  } else if (const Status taken = coordinator_->submit(0, std::move(requests), now); !taken.ok()) {
    enter_failure(taken);
  }
}

void ControlLoop::negotiate(TimePoint now) {
  // Whoever is not connected yet would miss what is sent now.
  if (!is_coordinator() || !formed_ || verdict_.known()) return;
  auto responses = coordinator_->poll(now, executor_.under_way());
  if (responses.empty()) return;
  send_all(encode_responses(responses));
  executor_.submit(std::move(responses));
}

void ControlLoop::check_left() {
  if (!is_coordinator() || verdict_.known() || left_ || !coordinator_->all_left()) return;
  send_all(encode_empty(Message::goodbye));
  const std::lock_guard lock(mutex_);
  left_ = true;
  changed_.notify_all();
}

TimePoint ControlLoop::check_timers(TimePoint now) {
  if (verdict_.known()) return kNever;
  TimePoint next = kNever;
  if (is_coordinator()) next = coordinator_->next_poll(executor_.under_way());
  if (lobby_) next = std::min(next, lobby_->expire(now));
  if (forming_until_ <= now) {
    std::vector<std::string> missing;
    for (int rank = 1; rank < spec_.size(); ++rank) {
      if (!peers_.contains(rank)) missing.push_back(who(rank));
    }
    enter_failure(
        Status(Code::deadline_exceeded,
               cat("forming the world: no connection in time from ", join(missing, ", "))));
    return kNever;
  }
  if (suspicion_until_ <= now) {
    enter_failure(suspicion_);
    return kNever;
  }
  return std::min({next, forming_until_, suspicion_until_});
}

void ControlLoop::handle(const Poller::Event& event, TimePoint now) {
  if (lobby_ && lobby_->knows(event.fd)) {
    if (auto arrival = lobby_->handle(event, now)) handle_arrival(std::move(*arrival));
    return;
  }
  const auto peer = rank_of_fd_.find(event.fd);
  if (peer == rank_of_fd_.end()) return;
  const int rank = peer->second;
  if (event.writable) {
    auto& connection = *peers_.at(rank);
    // An error shows when we read.
    if (const Status flushed = connection.flush(); !flushed.ok() || !connection.has_unsent()) {
      poller_.watch(event.fd);
    }
  }
  if (event.readable) handle_frames(rank, now);
}

void ControlLoop::handle_arrival(Lobby::Arrival arrival) {
  for (int rank = 1; rank < spec_.size(); ++rank) {
    if (arrival.name != handshake_name(rank)) continue;
    if (peers_.contains(rank)) break;
    const int fd = arrival.connection->fd();
    peers_.emplace(rank, std::move(arrival.connection));
    rank_of_fd_[fd] = rank;
    poller_.watch(fd);
    if (static_cast<int>(peers_.size()) == spec_.size() - 1) {
      lobby_.reset();
      set_formed();
    }
    return;
  }
  HVD_LOG(warning, "the coordinator refused a second or unknown member, \"" << arrival.name << '"');
  poller_.forget(arrival.connection->fd());
}

void ControlLoop::handle_frames(int rank, TimePoint now) {
  auto& connection = *peers_.at(rank);
  const Status received = connection.receive();
  for (;;) {
    auto frame = connection.next();
    Status status = frame.status();
    if (status.ok()) {
      if (!frame->has_value()) break;
      status = handle_frame(rank, **frame, now);
    }
    if (!status.ok()) {
      enter_failure({status.with_context(cat(who(rank), " does not keep to the protocol")), rank,
                     spec_.members[static_cast<std::size_t>(rank)].host});
      drop(rank);
      return;
    }
  }
  if (received.ok()) return;
  const bool expected = is_coordinator() ? coordinator_->has_left(rank) : left_;
  if (!expected) enter_failure(lost(rank, received));
  drop(rank);
}

Status ControlLoop::handle_frame(int rank, const Frame& frame, TimePoint now) {
  if (verdict_.known()) return {};  // what was under way no longer matters
  const auto kind = static_cast<Message>(frame.kind);
  if (kind == Message::abort) {
    auto failure = decode_failure(frame.payload);
    HVD_RETURN_IF_ERROR(failure.status());
    enter_failure(*failure);
    return {};
  }
  if (is_coordinator()) {
    switch (kind) {
      case Message::requests: {
        auto requests = decode_requests(frame.payload);
        HVD_RETURN_IF_ERROR(requests.status());
        return coordinator_->submit(rank, std::move(*requests), now);
      }
      case Message::suspicion: {
        auto suspicion = decode_failure(frame.payload);
        HVD_RETURN_IF_ERROR(suspicion.status());
        suspect_now(*suspicion, now);
        return {};
      }
      case Message::leave:
        coordinator_->leave(rank, now);
        return {};
      default:
        return {Code::data_loss, cat("a message of kind ", frame.kind)};
    }
  }
  switch (kind) {
    case Message::responses: {
      auto responses = decode_responses(frame.payload);
      HVD_RETURN_IF_ERROR(responses.status());
      executor_.submit(std::move(*responses));
      return {};
    }
    case Message::goodbye: {
      const std::lock_guard lock(mutex_);
      left_ = true;
      changed_.notify_all();
      return {};
    }
    default:
      return {Code::data_loss, cat("a message of kind ", frame.kind)};
  }
}

void ControlLoop::send(int rank, const std::string& bytes) {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return;
  auto& connection = *peer->second;
  // If the peer is gone, reading says so, and why.
  if (connection.send(bytes).ok() && connection.has_unsent()) poller_.watch(connection.fd(), true);
}

void ControlLoop::send_all(const std::string& bytes) {
  for (const auto& [rank, connection] : peers_) send(rank, bytes);
}

void ControlLoop::drop(int rank) {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return;
  poller_.forget(peer->second->fd());
  rank_of_fd_.erase(peer->second->fd());
  peers_.erase(peer);
}

// The coordinator hears of a death by the end of that member's connection, as a rule sooner than a
// neighbour's report travels: so a report waits a little for the name.
void ControlLoop::suspect_now(const Failure& why, TimePoint now) {
  if (verdict_.known() || !suspicion_.ok()) return;
  suspicion_ = why;
  suspicion_until_ = now + spec_.config.verdict_timeout;
  if (is_coordinator()) return;
  send(0, encode_failure(Message::suspicion, why));
  suspicion_until_ += spec_.config.verdict_timeout;
}

void ControlLoop::enter_failure(const Failure& why) {
  {
    const std::lock_guard lock(mutex_);
    if (left_ || !verdict_.set(why)) return;
    changed_.notify_all();
  }
  on_failure_();
  send_all(encode_failure(Message::abort, why));
  lobby_.reset();
  const Failure verdict = verdict_.get();
  for (const auto& entry : queue_.close(verdict)) entry.done(verdict);
}

// The others want to know why we go. What is unsent gets a moment; and since closing a connection
// on which something lies unread would take back what was sent last, so do they to close their end.
void ControlLoop::linger() {
  lobby_.reset();
  const auto until = Clock::now() + std::chrono::milliseconds(200);
  if (!left_) {
    for (const auto& [rank, connection] : peers_) {
      while (connection->has_unsent()) {
        if (!wait_for(connection->fd(), POLLOUT, until).ok() || !connection->flush().ok()) break;
      }
      poller_.watch(connection->fd());
      ::shutdown(connection->fd(), SHUT_WR);
    }
    while (!peers_.empty() && Clock::now() < until) {
      for (const auto& event : poller_.wait(until)) {
        const auto peer = rank_of_fd_.find(event.fd);
        if (peer == rank_of_fd_.end()) continue;
        const int rank = peer->second;
        if (!peers_.at(rank)->receive().ok()) drop(rank);
      }
    }
  }
  peers_.clear();
  rank_of_fd_.clear();
}

}  // namespace hvd::runtime
