// Frames on their way to one agent. Bounded by what is new, not by how slowly the agent reads:
// documents that go to many agents are shared and not copied, of the worlds that wait only the
// newest of each kind is kept, and a frame that belongs to one worker alone may be made when its
// turn comes. A value for one thread.
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

  void push(SharedBytes frame) { waiting_.push_back({std::move(frame), {}, false}); }
  // Called when all that was pushed before is on its way.
  void push(Make make) { waiting_.push_back({nullptr, std::move(make), false}); }
  // Overtakes all of which nothing has been written yet.
  void push_urgent(SharedBytes frame);
  // Takes the place of a world of the same kind that still waits.
  void push_world(bool effective, SharedBytes frame);

  bool empty() const { return begun_.empty() && waiting_.empty(); }
  // One that was pushed as urgent is not written yet.
  bool urgent_waits() const { return urgent_ != 0; }

  // The next bytes to write, about `most` of them: ends of frames, whole ones, and the beginning of
  // a long one. Valid until advance() says how many of them were written.
  std::vector<std::string_view> next(std::size_t most);
  void advance(std::size_t written);
  void clear();

 private:
  struct Item {
    SharedBytes frame;  // null: not made yet
    Make make;
    bool urgent = false;
  };
  using Place = std::list<Item>::iterator;

  void begin_first();

  std::deque<Item> begun_;  // nothing may come between their bytes
  std::size_t done_ = 0;    // written, of the first of these
  std::list<Item> waiting_;
  std::optional<Place> waiting_effective_;
  std::optional<Place> waiting_proposed_;
  std::size_t urgent_ = 0;
};

}  // namespace hvd::driver
