// Puts together what the members of a world report of their way into it (base/protocol/
// world_entry.h). The way is over when each member has ended its first step. Pure, for one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "base/protocol/world_document.h"
#include "base/protocol/world_entry.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

class WorldEntries {
 public:
  // `incarnation` is a member of `world`, which is in force. Returns the event that is to be told
  // to the job when this was the last of its members: once for each world at most.
  std::optional<event::WorldEntered> add(const WorldDocument& world, Incarnation incarnation,
                                         const WorldEntry& entry);

 private:
  std::uint64_t generation_ = 0;
  std::set<Incarnation> there_;
  event::WorldEntered so_far_;
};

}  // namespace hvd::driver
