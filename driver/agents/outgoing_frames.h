// The queue of frames to one agent. Its memory stays small even if the agent reads slowly:
// documents that go to many agents are shared and not copied, of the waiting worlds only the newest
// of each kind is kept, and a frame for a single worker may be made when its turn comes. A value
// for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shared_bytes.h"

namespace hvd::driver {

class OutgoingFrames {
 public:
  using Make = std::function<std::string()>;

  void push(SharedBytes frame) { waiting_.push_back({std::move(frame)}); }
  // `make` is called when all frames before have begun to be written.
  void push(Make make) { waiting_.push_back({nullptr, std::move(make)}); }
  // Overtakes all frames of which nothing has been written yet.
  void push_urgent(SharedBytes frame);
  // Replaces a world of the same kind that still waits. `keys` is written right before it; null:
  // the host has none.
  void push_world(bool effective, SharedBytes frame, SharedBytes keys);

  bool empty() const { return begun_.empty() && waiting_.empty(); }
  // An urgent frame is not completely written yet.
  bool urgent_waits() const { return urgent_ != 0; }

  // The next bytes to write, at most `most`: the rest of a frame, whole frames, and the beginning
  // of a long one. Valid until advance() is told how many of them were written.
  std::vector<std::string_view> next(std::size_t most);
  void advance(std::size_t written);
  void clear();

 private:
  struct Item {
    SharedBytes frame;  // null: not made yet
    Make make = {};
    bool urgent = false;
    SharedBytes before = nullptr;  // a frame that goes out with it, or null
  };
  using Place = std::list<Item>::iterator;

  void begin_first();

  std::deque<Item> begun_;  // no other frame may come between their bytes
  std::size_t done_ = 0;    // bytes of the first of these that are written
  std::list<Item> waiting_;
  std::optional<Place> waiting_effective_;
  std::optional<Place> waiting_proposed_;
  std::size_t urgent_ = 0;
};

}  // namespace hvd::driver
