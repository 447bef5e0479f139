#include "runtime/core/work_meter.h"

#include <algorithm>
#include <utility>

namespace hvd::runtime {

void WorkMeter::begin_wait(trace::Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  if (waits_since_ == kNoWait) waits_since_ = now;
}

void WorkMeter::end_wait(trace::Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  if (waits_since_ == kNoWait) return;
  const auto since = std::exchange(waits_since_, kNoWait);
  reading_.waited += std::max<trace::Nanoseconds>(now - since, 0);
}

void WorkMeter::add_step(trace::Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  ++reading_.steps;
  if (reading_.first_step == 0) reading_.first_step = now;
}

void WorkMeter::expect_first_step() {
  const std::lock_guard lock(mutex_);
  reading_.first_step = 0;
}

void WorkMeter::add(const Works& works) {
  const std::lock_guard lock(mutex_);
  for (std::size_t kind = 0; kind < works.size(); ++kind) {
    reading_.works[kind].operations += works[kind].operations;
    reading_.works[kind].bytes += works[kind].bytes;
  }
}

WorkMeter::Reading WorkMeter::read(trace::Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  Reading reading = reading_;
  if (waits_since_ != kNoWait) {
    reading.waited += std::max<trace::Nanoseconds>(now - waits_since_, 0);
  }
  told_ = std::max(told_, reading.waited);
  reading.waited = told_;
  return reading;
}

}  // namespace hvd::runtime
