// Decides which workers to start and which are to leave, so that the room that there is gets used:
// the difference between the workers that are there and those that should be. Pure.
//
//   - A worker has no room any more if its host is no longer named, or has fewer slots, or its slot
//     is drained. A host that shrinks loses its highest slots.
//   - No more workers than the most, and the spares beside it. Nobody goes to make room for
//   another.
//   - Free slots are filled on hosts that have members first, then on the others, each in the order
//     in which the hosts are named, the lowest slot first. On a host and in a slot that
//     rests nobody is started; its running workers work on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/protocol/world_document.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

// A host that may be used, in the order of discovery.
struct Room {
  std::string host;
  int slots = 1;
  bool rests = false;
  std::vector<int> resting_slots = {};
  std::vector<int> drained_slots = {};  // nobody works there, as somebody has asked
};

// A worker that was started and has not ended.
struct Occupant {
  std::string host;
  int slot = 0;
  Incarnation incarnation = 0;
  bool member = false;  // of the world; else it will be, or it is a spare
  bool leaves = false;  // it is on its way out: its slot is not free yet, but it counts no more
};

struct Limits {
  int least = 1;   // a world is not smaller
  int most = 0;    // nor greater; 0: no bound
  int spares = 0;  // workers that wait beside it
};

inline constexpr std::size_t kMaxWorkers = kMostMembers;  // of a job, whatever discovery prints

struct SlotPlace {
  std::string host;
  int slot = 0;
  int slots = 1;  // of that host
  friend bool operator==(const SlotPlace&, const SlotPlace&) = default;
};

struct Staffing {
  std::vector<SlotPlace> launch;
  std::vector<Incarnation> release;
};

// `occupants`: members by rank, then the others, the oldest first. Nobody stands twice in a slot.
Staffing staff(const std::vector<Room>& rooms, const std::vector<Occupant>& occupants,
               const Limits& limits);

// How large a world of so many usable workers is: spares stay out of it, but not if it were too
// small without them.
int world_size(int workers, const Limits& limits);

struct Leaver {
  Incarnation incarnation = 0;
  TimePoint leave_by = kNever;
};

// Which of the workers that are to leave stay in the next planned world all the same.
//
//   - As many as that world lacks to its least size.
//   - One of each world that may be in force when the next one takes effect, unless another member
//     of it goes on: the members of a world have the state at the commit that ends it, and
//     the new members of the next one get it from them. Without one of them it would be lost.
//
// The workers with the most time left stay.
//
// `leavers` by rank; `missing`: to the least size; `going_on`: members of the next world anyway;
// `worlds`: the members of each world that may be in force by then.
std::vector<Incarnation> who_stays_on(std::vector<Leaver> leavers, std::size_t missing,
                                      const std::vector<Incarnation>& going_on,
                                      const std::vector<std::vector<Incarnation>>& worlds);

}  // namespace hvd::driver
