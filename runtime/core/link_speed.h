// How fast the links between the hosts of a world are. Rank 0 collects what was measured and sends
// it with each response, since all ranks must choose the same algorithm (ops/algorithm_choice.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace hvd::runtime {

struct LinkSpeed {
  // The longest round trip between hosts that are neighbours in the control tree; 0: not known.
  std::chrono::microseconds round_trip{0};
  std::uint32_t megabytes_per_second = 0;  // that leave a host; 0: not known
  friend bool operator==(const LinkSpeed&, const LinkSpeed&) = default;
};

// Collects what is measured. All calls are safe from any thread.
class LinkMeter {
 public:
  // Transfers that are shorter tell more of the latency than of the bandwidth.
  static constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
  // The fastest of so many transfers counts: the others waited for something else.
  static constexpr int kTransfers = 8;

  explicit LinkMeter(LinkSpeed known = {}) : speed_(known), is_fixed_(known != LinkSpeed{}) {}
  void set_round_trip(std::chrono::microseconds round_trip);
  // So many bytes left a host, and as many arrived, in this time.
  void add_transfer(std::size_t bytes, Duration taken);
  LinkSpeed speed() const;

 private:
  mutable std::mutex mutex_;
  LinkSpeed speed_;            // guarded by mutex_
  bool is_fixed_;              // nothing changes it
  std::uint32_t fastest_ = 0;  // guarded by mutex_; of the transfers that follow
  int transfers_ = 0;          // guarded by mutex_; since the bandwidth was looked at last
};

}  // namespace hvd::runtime
