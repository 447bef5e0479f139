#include "worker/elastic/kept_states.h"

#include <algorithm>

namespace hvd::worker {
namespace {

std::size_t other(std::optional<std::size_t> buffer) { return buffer == 0U ? 1 : 0; }

}  // namespace

void KeptStates::entered(std::uint64_t generation, std::uint64_t run) {
  generation_ = generation;
  run_ = run;
  sequence_ = 0;
}

std::size_t KeptStates::begin_to_keep() {
  const std::size_t spare = other(newest_);
  ids_[spare] = {};
  return spare;
}

void KeptStates::kept(CommitId id) {
  const std::size_t spare = other(newest_);
  ids_[spare] = id;
  newest_ = spare;
  // A state of this world that was received is counted, too: the next one is newer.
  if (id.generation == generation_) sequence_ = std::max(sequence_, id.sequence);
}

}  // namespace hvd::worker
