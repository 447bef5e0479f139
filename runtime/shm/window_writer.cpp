#include "runtime/shm/window_writer.h"

#include <algorithm>

namespace hvd::runtime {

void StoreChoice::Pace::add(double pace) {
  before_ = last_;
  last_ = pace;
}

double StoreChoice::Pace::best() const { return std::min(last_, before_); }

void StoreChoice::took(std::size_t bytes, std::chrono::nanoseconds time) {
  Pace& pace = next() == Stores::cached ? cached_ : streamed_;
  pace.add(static_cast<double>(time.count()) / static_cast<double>(bytes));
  chosen_ = cached_.best() > kMuchSlower * streamed_.best() ? Stores::streamed : Stores::cached;
  if (++turn_ < kPeriod) return;
  turn_ = 0;
  tried_ = chosen_ == Stores::cached ? Stores::streamed : Stores::cached;
}

}  // namespace hvd::runtime
