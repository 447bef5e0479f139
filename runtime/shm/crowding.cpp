#include "runtime/shm/crowding.h"

#include <algorithm>
#include <utility>

namespace hvd::runtime {

void Crowding::passed(std::size_t chunks, Duration without_core, TimePoint now) {
  chunks_ += chunks;
  without_core_ += without_core;
  if (chunks_ < kChunks) return;

  const bool crowded = std::exchange(without_core_, {}) > limit_ * std::exchange(chunks_, 0);
  presumed_for_ =
      crowded ? std::clamp<Duration>(2 * presumed_for_, kShortest, kLongest) : Duration();
  if (crowded) until_ = now + presumed_for_;
}

}  // namespace hvd::runtime
