#include "runtime/shm/chunk_writer.h"

#include <algorithm>

namespace hvd::runtime {

StoreChoice::Stores StoreChoice::next() const {
  if (turn_ >= kTrial) return chosen_;
  return turn_ % 2 == 0 ? Stores::cached : Stores::streamed;
}

void StoreChoice::begin_trial() {
  turn_ = 0;
  slow_in_a_row_ = 0;
  cached_ = streamed_ = kUnknown;
}

void StoreChoice::took(Stores stores, std::size_t bytes, std::chrono::nanoseconds time) {
  const double pace = static_cast<double>(time.count()) / static_cast<double>(bytes);
  if (turn_ < kTrial) {
    double& best = stores == Stores::cached ? cached_ : streamed_;
    best = std::min(best, pace);
    if (++turn_ == kTrial) chosen_ = is_much_slower(cached_) ? Stores::streamed : Stores::cached;
    return;
  }
  // When cores part, it need not wait for the next trial to be seen.
  constexpr int kSuspicious = 2;
  const bool slow = stores == Stores::cached && is_much_slower(pace);
  slow_in_a_row_ = slow ? slow_in_a_row_ + 1 : 0;
  if (++turn_ >= kPeriod || slow_in_a_row_ >= kSuspicious) begin_trial();
}

}  // namespace hvd::runtime
