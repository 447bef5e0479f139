// What the messenger keeps for one buffer: which of its messages have ended. A buffer owns one and
// gives it up with Messenger::forget(); everything in it is guarded by the messenger's mutex.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace hvd::runtime {

enum class Direction : std::size_t { send = 0, receive = 1 };

struct Endpoint {
  // Of messages that have ended and were not yet waited for: the rank at the other end.
  std::array<std::vector<int>, 2> ended;
  std::array<bool, 2> released{};  // the wait is to end without a message
  std::size_t pending = 0;         // messages begun and not ended

  std::vector<int>& ended_of(Direction direction) {
    return ended[static_cast<std::size_t>(direction)];
  }
  bool& released_of(Direction direction) { return released[static_cast<std::size_t>(direction)]; }
};

// A message that is cut in parts, one for each connection with the other rank.
struct Stripes {
  std::size_t left;  // parts that have not ended
  int rank = -1;     // of a receive from any of several: the one whose message it is
};

// A message that has ended.
struct Ended {
  Endpoint* endpoint;
  Direction direction;
  int rank;
};

}  // namespace hvd::runtime
