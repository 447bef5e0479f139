#include "runtime/core/link_speed.h"

#include <algorithm>
#include <limits>

namespace hvd::runtime {

void LinkMeter::set_round_trip(std::chrono::microseconds round_trip) {
  if (is_fixed_) return;
  const std::lock_guard lock(mutex_);
  speed_.round_trip = round_trip;
}

void LinkMeter::add_transfer(std::size_t bytes, Duration taken) {
  if (is_fixed_ || bytes < kLeastBytes || taken <= Duration::zero()) return;
  const double seconds = std::chrono::duration<double>(taken).count();
  const double megabytes = static_cast<double>(bytes) / 1e6 / seconds;
  const auto rate = static_cast<std::uint32_t>(
      std::clamp(megabytes, 1.0, double{std::numeric_limits<std::uint32_t>::max()}));

  const std::lock_guard lock(mutex_);
  std::uint32_t& known = speed_.megabytes_per_second;
  if (known == 0) {
    known = rate;
    return;
  }
  fastest_ = std::max(fastest_, rate);
  if (++transfers_ < kTransfers) return;
  // Within a quarter it is noise, and each change may change the algorithm, and with it the order
  // of additions.
  if (fastest_ > known + known / 4 || fastest_ < known - known / 4) known = fastest_;
  fastest_ = 0;
  transfers_ = 0;
}

LinkSpeed LinkMeter::speed() const {
  const std::lock_guard lock(mutex_);
  return speed_;
}

}  // namespace hvd::runtime
