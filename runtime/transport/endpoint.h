// The record that the messenger keeps for one buffer: which of its messages have ended. A buffer
// owns one and gives it up with Messenger::forget(); everything in it is guarded by the messenger's
// mutex.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace hvd::runtime {

enum class Direction : std::size_t { send = 0, receive = 1 };

// A message between ranks that have several connections: one part, or one for each of them.
struct Stripes {
  std::size_t left;  // parts that have not ended
  std::uint64_t slot;
  int rank = -1;  // at the other end; of a receive: unknown until its first part has begun
};

// Whether a message has ended with this part of it.
inline bool is_last_part(const std::shared_ptr<Stripes>& stripes) {
  return !stripes || --stripes->left == 0;
}

struct Endpoint {
  // The rank at the other end of messages that have ended and were not yet waited for.
  std::array<std::vector<int>, 2> ended;
  // With several connections: the messages that are not in `ended` yet, in the order in which they
  // were begun. A short message may overtake a long one, which is told first nevertheless.
  std::array<std::deque<std::shared_ptr<Stripes>>, 2> begun;
  std::array<bool, 2> released{};  // the wait is to end without a message
  std::size_t pending = 0;         // messages begun and not ended

  std::vector<int>& ended_of(Direction direction) {
    return ended[static_cast<std::size_t>(direction)];
  }
  std::deque<std::shared_ptr<Stripes>>& begun_of(Direction direction) {
    return begun[static_cast<std::size_t>(direction)];
  }
  bool& released_of(Direction direction) { return released[static_cast<std::size_t>(direction)]; }
};

// A message that has ended.
struct Ended {
  Endpoint* endpoint;
  Direction direction;
  int rank;
  std::shared_ptr<Stripes> stripes;  // null: there is one connection
};

}  // namespace hvd::runtime
