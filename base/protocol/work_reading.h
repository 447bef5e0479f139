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

// How far a worker is that writes the state of a job that is being suspended to a file.
struct StateSaving {
  std::uint64_t total_bytes = 0;  // 0: it writes none
  std::uint64_t written_bytes = 0;
  bool is_in_place = false;  // the file is complete and has its name
  friend bool operator==(const StateSaving&, const StateSaving&) = default;
  void fields(auto& archive) { archive(total_bytes, written_bytes, is_in_place); }
};

struct WorkReading {
  std::uint64_t time_ns = 0;  // of the worker's own clock: only differences mean something
  // Steps of the program, as far as names tell: one ends when a name is used again.
  std::uint64_t steps = 0;
  // During this time some request of the worker waited for requests of other ranks.
  std::uint64_t waited_ns = 0;
  std::vector<CollectiveWork> collectives = {};  // those that were used, each once
  WorldEntry entry = {};                         // of the world that it came into last
  StateSaving saving = {};
  friend bool operator==(const WorkReading&, const WorkReading&) = default;
  // Sums over all collectives.
  std::uint64_t operations() const;
  std::uint64_t bytes() const;
  // data_loss: a collective is there twice.
  Status check() const;
  void fields(auto& archive) { archive(time_ns, steps, waited_ns, collectives, entry, saving); }
};

}  // namespace hvd
