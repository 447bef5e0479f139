// The work counters of a worker, which it sends about once a second. A counter never shrinks, and
// goes on from one world to the next.
#pragma once

#include <cstdint>
#include <vector>

#include <hvd/types.h>

#include "base/collective.h"
#include "base/protocol/world_entry.h"

namespace hvd {

struct CollectiveWork {
  Collective kind = Collective::allreduce;
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;  // of this worker's own tensors
  friend bool operator==(const CollectiveWork&, const CollectiveWork&) = default;
  void fields(auto& archive) { archive(kind, operations, bytes); }
};

struct WorkReading {
  std::uint64_t time_ns = 0;  // of the worker's own clock: only differences mean something
  // Steps of the program, as far as names tell: one ends when a name is used again.
  std::uint64_t steps = 0;
  // During this time some request of the worker waited for requests of other ranks.
  std::uint64_t waited_ns = 0;
  std::vector<CollectiveWork> collectives = {};  // those that were used, each once
  WorldEntry entry = {};                         // of the world that it came into last
  friend bool operator==(const WorkReading&, const WorkReading&) = default;
  // Of all collectives together.
  std::uint64_t operations() const;
  std::uint64_t bytes() const;
  // data_loss: a collective is there twice.
  Status check() const;
  void fields(auto& archive) { archive(time_ns, steps, waited_ns, collectives, entry); }
};

}  // namespace hvd
