// How a worker came into its world, part by part: what it measures by its own clock and reports
// with its work counters (base/protocol/work_reading.h).
#pragma once

#include <cstdint>

namespace hvd {

// Times are in nanoseconds. The parts follow each other without a gap, but for what a program does
// in its first world before elastic::run. If an attempt fails and is made again, its time is added.
struct WorldEntry {
  std::uint64_t generation = 0;  // of the world; 0: it has not come into any
  // From the end of its last world, as the program notices it, until it has left that world. 0 in
  // its first one.
  std::uint64_t leave_ns = 0;
  // Until hvdrun tells it of the new world. 0 in its first one.
  std::uint64_t wait_ns = 0;
  std::uint64_t connect_ns = 0;  // until it is connected to the other members
  // Until the members agree from which state they go on. 0 without elastic::run, as the next.
  std::uint64_t vote_ns = 0;
  std::uint64_t sync_ns = 0;         // until it has that state
  std::uint64_t expected_bytes = 0;  // of the state, which others send; 0: it has the state already
  std::uint64_t received_bytes = 0;  // of these, so far
  // The steps that had begun since the last commit when the world before ended: they are done
  // again. 0 if names of tensors do not tell steps.
  std::uint64_t redone_steps = 0;
  // Until the first step ended: at a commit, or when a tensor's name is used again. 0: it has not.
  std::uint64_t step_ns = 0;

  friend bool operator==(const WorldEntry&, const WorldEntry&) = default;
  void fields(auto& archive) {
    archive(generation, leave_ns, wait_ns, connect_ns, vote_ns, sync_ns, expected_bytes,
            received_bytes, redone_steps, step_ns);
  }
};

}  // namespace hvd
