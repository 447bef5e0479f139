#include "runtime/transport/messenger.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <new>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <utility>

#include "base/text.h"
#include "runtime/core/silence.h"

namespace hvd::runtime {
namespace {

// When sends are stuck and nothing has moved for so long, unexpected messages are read and kept.
constexpr std::chrono::milliseconds kStandstill{2};
constexpr std::chrono::hours kLongest{24 * 365};
constexpr int kNobody = -1;

// Short enough to be copied where there is none.
Status no_memory() { return {Code::resource_exhausted, "no memory left"}; }

}  // namespace

// A caller that waits. Whichever way its wait ends, the list forgets it and the lead is free again.
// The mutex is held when it is made and when it ends.
class Messenger::Waiter {
 public:
  Waiter(Messenger& messenger, Endpoint& its) : endpoint(&its), messenger_(messenger) {
    messenger_.waiters_.push_back(this);
  }
  ~Waiter() {
    auto& waiters = messenger_.waiters_;
    waiters.remove(this);
    if (leads) messenger_.has_leader_ = false;
    // Not only the leader: it may have handed over to this waiter, which ends, too.
    if (!messenger_.has_leader_ && !waiters.empty()) waiters.front()->wake.notify_one();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  Endpoint* const endpoint;
  std::condition_variable wake;
  bool leads = false;

 private:
  Messenger& messenger_;
};

// Fails the messenger if the scope ends by an exception. The mutex is held when it is made and when
// it ends.
class Messenger::UnwindGuard {
 public:
  explicit UnwindGuard(Messenger& messenger) : messenger_(messenger) {}
  ~UnwindGuard() {
    if (std::uncaught_exceptions() > before_) messenger_.fail(no_memory());
  }
  UnwindGuard(const UnwindGuard&) = delete;
  UnwindGuard& operator=(const UnwindGuard&) = delete;

 private:
  Messenger& messenger_;
  const int before_ = std::uncaught_exceptions();
};

Messenger::Messenger(int rank, int size, const Options& options)
    : rank_(rank), size_(size), options_(options) {
  for (int other = 0; other < size; ++other) {
    for (int socket = 0; socket < options.sockets; ++socket) {
      links_.push_back(std::make_unique<Link>(rank, Route{other, socket}, unexpected_));
    }
  }
}

Messenger::~Messenger() = default;

Status Messenger::open(std::function<void(const Route& route)> dial) {
  dial_ = std::move(dial);
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return Status::from_errno("epoll_create", errno);
  wakeup_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wakeup_) return Status::from_errno("eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = kNobody;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeup_.get(), &event) != 0) {
    return Status::from_errno("epoll_ctl", errno);
  }
  return {};
}

Status Messenger::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// --- connections --------------------------------------------------------------------------------

Status Messenger::adopt(const Route& route, ProvedSocket socket) {
  const std::lock_guard lock(mutex_);
  HVD_RETURN_IF_ERROR(failure_);
  Link& its = link(route);
  if (its.state() == Link::State::open || its.state() == Link::State::closed) {
    return {Code::already_exists, cat("rank ", route.rank, " has connected before")};
  }
  // Edge-triggered: what is told once is remembered by the link. A poller hears of the new
  // connection at once.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.fd = static_cast<int>(index_of(route));
  const int number = socket.fd.get();
  its.open(std::move(socket.fd), socket.keys, options_.protection);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, number, &event) == 0) return {};
  Status why = Status::from_errno("epoll_ctl", errno);
  link_ended(its, why);
  return why;
}

void Messenger::lose(const Route& route, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok() && link(route).state() != Link::State::open) link_ended(link(route), why);
}

Status Messenger::check_peer(int rank, const char* what) {
  if (rank >= 0 && rank < size_ && rank != rank_) return {};
  return {Code::invalid_argument,
          cat(what, " rank ", rank, ": rank ", rank_, " of ", size_, " has no such peer")};
}

// A message is about to need the link.
Status Messenger::need(Link& its) {
  if (its.state() == Link::State::idle) {
    its.await();
    if (rank_ > its.rank()) dial_(its.route());
  }
  if (its.state() != Link::State::closed) return {};
  its.miss();
  return its.closed_because();
}

void Messenger::link_ended(Link& its, const Status& why) {
  if (its.state() == Link::State::closed) return;
  const bool needed = its.is_needed();
  if (its.fd() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, its.fd(), nullptr);
  its.close(why);
  if (needed) fail(why);
}

// --- messages -----------------------------------------------------------------------------------

Messenger::StripeExtent Messenger::stripe_extent(std::size_t bytes, int stripe, int stripes) {
  constexpr std::size_t kTogether = 64;  // a line of the caches
  const auto count = static_cast<std::size_t>(stripes);
  const auto index = static_cast<std::size_t>(stripe);
  const std::size_t each = bytes / count / kTogether * kTogether;
  return {index * each, index + 1 == count ? bytes - index * each : each};
}

std::shared_ptr<Stripes> Messenger::stripes_for(Endpoint& endpoint, Direction direction,
                                                std::uint64_t slot, int stripes, int rank) const {
  if (options_.sockets == 1) return nullptr;
  auto parts = std::make_shared<Stripes>(Stripes{static_cast<std::size_t>(stripes), slot, rank});
  endpoint.begun_of(direction).push_back(parts);
  return parts;
}

Status Messenger::send(Endpoint& endpoint, int to, std::uint64_t slot, const std::byte* data,
                       std::size_t bytes) {
  HVD_RETURN_IF_ERROR(check_peer(to, "send to"));
  const std::lock_guard lock(mutex_);
  const UnwindGuard guard(*this);
  if (must_stop()) return failure_;
  const int stripes = stripes_of(bytes);
  const auto parts = stripes_for(endpoint, Direction::send, slot, stripes, to);
  ++endpoint.pending;
  for (int i = 0; i < stripes && failure_.ok(); ++i) {
    Link& its = link({to, i});
    if (const Status there = need(its); !there.ok()) {
      fail(there);
      break;
    }
    const auto [begin, count] = stripe_extent(bytes, i, stripes);
    its.send(endpoint, slot, data + begin, count, parts);
    if (its.can_move()) move(its);
  }
  return failure_;
}

Status Messenger::receive(Endpoint& endpoint, std::span<const int> from, std::uint64_t slot,
                          std::byte* data, std::size_t bytes) {
  if (from.empty()) return {Code::invalid_argument, "receive from an empty list of ranks"};
  for (const int rank : from) HVD_RETURN_IF_ERROR(check_peer(rank, "receive from"));
  const std::lock_guard lock(mutex_);
  const UnwindGuard guard(*this);
  if (must_stop()) return failure_;
  const int stripes = stripes_of(bytes);
  const auto parts = stripes_for(endpoint, Direction::receive, slot, stripes, -1);
  ++endpoint.pending;
  for (int i = 0; i < stripes && failure_.ok(); ++i) {
    const auto [begin, count] = stripe_extent(bytes, i, stripes);
    auto wanted = std::make_shared<Receive>(Receive{&endpoint, slot, data + begin, count});
    wanted->stripes = parts;
    HVD_RETURN_IF_ERROR(receive_on(i, from, wanted));
  }
  return failure_;
}

Status Messenger::receive_on(int socket, std::span<const int> from,
                             const std::shared_ptr<Receive>& wanted) {
  wanted->sources = 0;
  Link* first = nullptr;
  std::uint64_t earliest = 0;
  Status none;
  for (const int rank : from) {
    if (!wanted->may_be_from(rank)) continue;
    Link& its = link({rank, socket});
    // A message that a rank sent before it went is still there.
    const auto since = its.waiting_since(*wanted);
    if (since != 0 && (earliest == 0 || since < earliest)) {
      earliest = since;
      first = &its;
    }
    if (const Status there = need(its); there.ok()) {
      ++wanted->sources;
    } else {
      none = there;
    }
  }
  if (first == nullptr && wanted->sources == 0) {
    fail(none);
    return failure_;
  }
  if (first != nullptr) {
    const Status taken = first->take_waiting(wanted, ended_);
    settle();
    if (!taken.ok()) fail(taken);
    if (failure_.ok() && first->state() == Link::State::open) move(*first);
    return failure_;
  }
  for (const int rank : from) {
    Link& its = link({rank, socket});
    if (wanted->taken) break;
    if (its.state() == Link::State::closed || !wanted->may_be_from(rank)) continue;
    its.expect(wanted);
    if (!its.holds_up() || !failure_.ok()) continue;
    // The message that is wanted now may lie behind.
    its.keep_what_holds_up();
    move(its);
  }
  return failure_;
}

std::optional<int> Messenger::take(Endpoint& endpoint, Direction direction) {
  auto& ended = endpoint.ended_of(direction);
  if (ended.empty()) return std::nullopt;
  const int rank = ended.front();
  ended.erase(ended.begin());
  return rank;
}

Result<std::optional<int>> Messenger::wait(Endpoint& endpoint, Direction direction,
                                           std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (const auto rank = take(endpoint, direction)) return rank;
  const UnwindGuard guard(*this);
  Silence silence(Clock::now(), std::min<std::chrono::milliseconds>(timeout, kLongest));
  Waiter self(*this, endpoint);
  bool in_time = true;
  std::optional<int> rank;
  for (;;) {
    rank = take(endpoint, direction);
    if (rank || must_stop()) break;
    if (std::exchange(endpoint.released_of(direction), false)) break;
    if (!in_time) {
      fail(time_out(endpoint, direction, timeout));
      break;
    }
    if (!has_leader_) has_leader_ = self.leads = true;
    if (self.leads) {
      lead(lock, self, direction, silence.next_look());
    } else {
      self.wake.wait_until(lock, silence.next_look());
    }
    const auto now = Clock::now();
    if (now < silence.next_look()) continue;
    in_time = !silence.is_over(moved_for(endpoint, direction), now);
  }
  if (!rank && !failure_.ok()) return failure_;
  return rank;
}

void Messenger::release(Endpoint& endpoint, Direction direction) {
  const std::lock_guard lock(mutex_);
  endpoint.released_of(direction) = true;
  for (Waiter* const waiter : waiters_) waiter->wake.notify_one();
  wake_leader();
}

void Messenger::forget(Endpoint& endpoint) noexcept {
  const std::lock_guard lock(mutex_);
  if (endpoint.pending == 0 || must_stop()) return;
  for (const auto& its : links_) {
    if (its->forget(endpoint)) continue;
    try {
      fail({Code::failed_precondition,
            cat("the memory of a message between rank ", rank_, " and rank ", its->rank(),
                " was given up before the message had ended")});
    } catch (const std::bad_alloc&) {
      fail(no_memory());
    }
    return;
  }
}

// --- progress -----------------------------------------------------------------------------------

// One round: everything that can move, or a sleep until something can.
void Messenger::lead(std::unique_lock<std::mutex>& lock, const Waiter& self, Direction direction,
                     TimePoint deadline) {
  std::vector<Link*> movable;
  movable.swap(movable_);
  for (auto at = movable.begin(); at != movable.end(); ++at) {
    if ((*at)->state() != Link::State::open) continue;
    move(**at);
    if (must_stop()) return;
    // A waiter whose message has ended returns at once.
    if (self.endpoint->ended_of(direction).empty()) continue;
    for (++at; at != movable.end(); ++at) leave_for_leader(**at);
    return;
  }
  poll(lock, movable_.empty() ? deadline : TimePoint{});
}

void Messenger::poll(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  std::array<epoll_event, 64> events;  // NOLINT(cppcoreguidelines-pro-type-member-init): read into
  bool may_stand_still = false;
  if (deadline != TimePoint{}) {
    const auto any = [this](bool (Link::*is)() const) {
      return std::any_of(links_.begin(), links_.end(),
                         [is](const auto& its) { return (*its.*is)(); });
    };
    may_stand_still = any(&Link::holds_up) && any(&Link::is_stuck_sending);
  }
  auto until = deadline;
  if (may_stand_still) until = std::min(until, Clock::now() + kStandstill);
  polling_ = true;
  lock.unlock();
  const int timeout = deadline == TimePoint{} ? 0 : milliseconds_until(until, Clock::now());
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  lock.lock();
  polling_ = false;
  if (count == 0 && may_stand_still && failure_.ok()) keep_what_holds_up();
  for (int i = 0; i < count; ++i) {
    const auto& event = events.at(static_cast<std::size_t>(i));
    if (event.data.fd == kNobody) {
      std::uint64_t times = 0;
      [[maybe_unused]] const auto got = ::read(wakeup_.get(), &times, sizeof(times));
      continue;
    }
    Link& its = *links_[static_cast<std::size_t>(event.data.fd)];
    if (its.state() != Link::State::open) continue;
    its.mark((event.events & EPOLLIN) != 0, (event.events & EPOLLOUT) != 0,
             (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
    if (its.can_move()) leave_for_leader(its);
  }
}

void Messenger::keep_what_holds_up() {
  for (const auto& its : links_) {
    if (!its->holds_up()) continue;
    its->keep_what_holds_up();
    move(*its);
    if (!failure_.ok()) return;
  }
}

// Some bytes of one link, both ways.
void Messenger::move(Link& its) {
  const auto received = its.all_read();
  const auto sent = its.all_written();
  Status status = its.move_out(ended_);
  if (status.ok()) status = its.move_in(ended_);
  const auto in = its.all_read() - received;
  const auto out = its.all_written() - sent;
  if (options_.on_moved && in + out != 0) options_.on_moved(in, out);
  settle();
  if (status.ok()) {
    if (its.can_move()) leave_for_leader(its);
    return;
  }
  link_ended(its, status);
  if (status.code() == Code::data_loss) fail(status);
}

void Messenger::leave_for_leader(Link& its) {
  if (std::find(movable_.begin(), movable_.end(), &its) == movable_.end()) movable_.push_back(&its);
  wake_leader();
}

// Wakes the waiters of messages that have ended.
void Messenger::settle() {
  for (const auto& message : ended_) {
    Endpoint* const endpoint = message.endpoint;
    --endpoint->pending;
    if (message.stripes) {
      tell_in_order(message);
    } else {
      endpoint->ended_of(message.direction).push_back(message.rank);
    }

    for (Waiter* const waiter : waiters_) {
      if (waiter->endpoint != endpoint) continue;
      if (waiter->leads) {
        wake_leader();
      } else {
        waiter->wake.notify_one();
      }
    }
  }
  ended_.clear();
}

// This message, and those after it that have waited for it, unless it has to wait itself. Over one
// connection all comes in order, but a message of one part overtakes those that travel on several.
void Messenger::tell_in_order(const Ended& message) {
  auto& begun = message.endpoint->begun_of(message.direction);
  const auto is_alike = [&message](const auto& other) {
    return other->rank == message.rank && other->slot == message.stripes->slot;
  };

  for (auto at = begun.begin(); at != begun.end();) {
    if (!is_alike(*at)) {
      ++at;
      continue;
    }
    if ((*at)->left > 0) return;
    message.endpoint->ended_of(message.direction).push_back(message.rank);
    at = begun.erase(at);
  }
}

// A leader that is at work sees for itself what has changed.
void Messenger::wake_leader() {
  if (!polling_) return;
  const std::uint64_t once = 1;
  [[maybe_unused]] const auto put = ::write(wakeup_.get(), &once, sizeof(once));
}

// --- the end ------------------------------------------------------------------------------------

// If there is no memory to copy the reason, the lack of memory becomes the reason.
void Messenger::fail(const Status& why) noexcept {
  if (!failure_.ok()) return;
  try {
    close_all(why);
  } catch (const std::bad_alloc&) {
    close_all(no_memory());
  }
}

void Messenger::close_all(const Status& why) {
  for (const auto& its : links_) its->close(why);
  failure_ = Status(why);  // whole, or not at all
  movable_.clear();
  ended_.clear();
  for (Waiter* const waiter : waiters_) waiter->wake.notify_one();
  wake_leader();
}

bool Messenger::must_stop() {
  if (stopping_.load(std::memory_order_relaxed) && failure_.ok()) {
    Status why;
    {
      const std::lock_guard lock(stop_mutex_);
      why = stop_reason_;
    }
    fail(why);
  }
  return !failure_.ok();
}

void Messenger::abort(const Status& why) {
  {
    const std::lock_guard lock(stop_mutex_);
    if (stopping_) return;
    stop_reason_ = why.ok() ? Status(Code::aborted, "the data connections were shut") : why;
    stopping_ = true;
  }
  const std::lock_guard lock(mutex_);
  must_stop();
}

}  // namespace hvd::runtime
