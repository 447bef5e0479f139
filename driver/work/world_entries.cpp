#include "driver/work/world_entries.h"

#include <algorithm>
#include <chrono>

namespace hvd::driver {
namespace {

// Workers may report anything. No part takes longer than this, so that sums and differences fit.
constexpr std::chrono::hours kLongest{24 * 365};

// Nor has a member a larger state.
constexpr std::uint64_t kMostReceived = std::uint64_t{1} << 46;

Duration time_of(std::uint64_t count) {
  constexpr std::chrono::nanoseconds kMost = kLongest;
  return std::chrono::nanoseconds(std::min(count, static_cast<std::uint64_t>(kMost.count())));
}

// Nor has it done more steps.
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 46;

event::WorldEntered event_of(Incarnation incarnation, const WorldEntry& entry) {
  event::WorldEntered entered;
  entered.generation = entry.generation;
  entered.slowest = incarnation;
  entered.leave = time_of(entry.leave_ns);
  entered.wait = time_of(entry.wait_ns);
  entered.connect = time_of(entry.connect_ns);
  entered.vote = time_of(entry.vote_ns);
  entered.sync = time_of(entry.sync_ns);
  entered.step = time_of(entry.step_ns);
  return entered;
}

}  // namespace

std::optional<event::WorldEntered> WorldEntries::add(const WorldDocument& world,
                                                     Incarnation incarnation,
                                                     const WorldEntry& entry) {
  if (entry.generation != world.generation || entry.step_ns == 0) return std::nullopt;
  if (generation_ != world.generation) {
    generation_ = world.generation;
    there_.clear();
    so_far_ = {};
  }
  if (!there_.insert(incarnation).second) return std::nullopt;

  const std::uint64_t received = so_far_.received + std::min(entry.received_bytes, kMostReceived);
  const std::uint64_t redone = std::max(so_far_.redone, std::min(entry.redone_steps, kMostSteps));
  const event::WorldEntered own = event_of(incarnation, entry);
  if (there_.size() == 1 || own.time() > so_far_.time()) so_far_ = own;
  so_far_.received = received;
  so_far_.redone = redone;
  if (there_.size() < world.members.size()) return std::nullopt;
  return so_far_;
}

}  // namespace hvd::driver
