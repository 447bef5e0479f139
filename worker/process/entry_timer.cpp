#include "worker/process/entry_timer.h"

#include <algorithm>
#include <chrono>

namespace hvd::worker {
namespace {

std::uint64_t nanoseconds_between(TimePoint from, TimePoint to) {
  const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(time, 0));
}

}  // namespace

std::uint64_t EntryTimer::since_last(TimePoint now) {
  const std::uint64_t time = nanoseconds_between(last_, now);
  last_ = std::max(last_, now);
  return time;
}

void EntryTimer::world_ended(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::inside && phase_ != Phase::resuming) return;
  phase_ = Phase::leaving;
  next_ = {};
  last_ = now;
}

void EntryTimer::left_world(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::leaving) return;
  next_.leave_ns = since_last(now);
  phase_ = Phase::waiting;
}

void EntryTimer::heard_of_world(TimePoint now) {
  const std::lock_guard lock(mutex_);
  switch (phase_) {
    case Phase::outside:
    case Phase::inside:  // the program called shutdown(), and init() again
    case Phase::resuming:
      next_ = {};
      last_ = now;
      break;
    case Phase::leaving:
      next_.leave_ns = since_last(now);
      break;
    case Phase::waiting:
    case Phase::connecting:  // an attempt has failed
      next_.wait_ns += since_last(now);
      break;
  }
  phase_ = Phase::connecting;
}

void EntryTimer::connected(std::uint64_t generation, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::connecting) return;
  next_.connect_ns += since_last(now);
  next_.generation = generation;
  entry_ = next_;
  phase_ = Phase::inside;
}

void EntryTimer::begin_vote(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::inside || entry_.vote_ns != 0) return;
  phase_ = Phase::resuming;
  entry_.step_ns = 0;
  last_ = std::max(last_, now);
}

void EntryTimer::redoes(std::uint64_t steps) {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::inside && entry_.vote_ns == 0) entry_.redone_steps = steps;
}

void EntryTimer::voted(std::uint64_t expected_bytes, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::resuming) return;
  entry_.vote_ns = since_last(now);
  entry_.expected_bytes = expected_bytes;
  entry_.received_bytes = 0;
  moved_before_ = moved_();
}

void EntryTimer::found(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::resuming) return;
  entry_.expected_bytes -= std::min(entry_.expected_bytes, bytes);
}

void EntryTimer::received(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::resuming) return;
  entry_.received_bytes = bytes;
  moved_before_ = moved_();
}

void EntryTimer::has_state(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::resuming) return;
  phase_ = Phase::inside;
  entry_.sync_ns = since_last(now);
  entry_.received_bytes = entry_.expected_bytes;
}

void EntryTimer::step_ended(TimePoint at) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::inside || at <= last_) return;
  const std::uint64_t time = nanoseconds_between(last_, at);
  if (entry_.step_ns == 0 || time < entry_.step_ns) entry_.step_ns = time;
}

WorldEntry EntryTimer::read() const {
  const std::lock_guard lock(mutex_);
  WorldEntry entry = entry_;
  if (phase_ == Phase::resuming) {
    const std::uint64_t with_moved = entry.received_bytes + (moved_() - moved_before_);
    entry.received_bytes =
        std::max(entry.received_bytes, std::min(entry.expected_bytes, with_moved));
  }
  return entry;
}

}  // namespace hvd::worker
