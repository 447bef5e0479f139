// Measures how this process comes into its worlds, part by part (base/protocol/world_entry.h). Each
// call ends one part, and the next one begins. Calls that do not fit have no effect. If a world
// ends before its state is in place, the way to the next one is measured anew.
//
// Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/protocol/world_entry.h"

namespace hvd::worker {

class EntryTimer {
 public:
  // `moved`: bytes that have come over connections so far, whatever they are. Any thread may call
  // it.
  explicit EntryTimer(std::function<std::uint64_t()> moved = [] { return std::uint64_t{0}; })
      : moved_(std::move(moved)) {}

  // The last world has ended. Only the first call before the next world counts.
  void world_ended(TimePoint now);
  void left_world(TimePoint now);
  // A world is to be formed. In the first one everything begins here.
  void heard_of_world(TimePoint now);
  void connected(std::uint64_t generation, TimePoint now);
  // elastic::run begins to agree on the state. In the first world the program may have done
  // something else before, which does not count.
  void begin_vote(TimePoint now);
  // So many steps of the last world are done again in this one. Before begin_vote().
  void redoes(std::uint64_t steps);
  // `expected_bytes` of the state are to come from others; 0: this member has it.
  void voted(std::uint64_t expected_bytes, TimePoint now);
  // So many of them need not come, since this member has them.
  void found(std::uint64_t bytes);
  // So many of the others are here. From then on what moves counts as some of the others.
  void received(std::uint64_t bytes);
  void has_state(TimePoint now);
  // The earliest call counts, whatever the order of the calls. A step that ended before the state
  // of this world was in place is ignored.
  void step_ended(TimePoint at);

  // The times of the world that this process is in, or was in last.
  WorldEntry read() const;

 private:
  enum class Phase { outside, leaving, waiting, connecting, inside, resuming };

  std::uint64_t since_last(TimePoint now);

  const std::function<std::uint64_t()> moved_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::outside;  // guarded by mutex_, as all that follows
  TimePoint last_{};              // the end of the last part
  WorldEntry next_;               // while the way there is not over
  WorldEntry entry_;
  std::uint64_t moved_before_ = 0;  // when entry_.received_bytes was right
};

}  // namespace hvd::worker
