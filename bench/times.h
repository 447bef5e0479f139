// How benchmarks measure.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace hvd::bench {

inline double milliseconds_since(TimePoint begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

template <typename Work>
double milliseconds(const Work& work) {
  const auto begin = Clock::now();
  work();
  return milliseconds_since(begin);
}

// Of at least one.
inline double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace hvd::bench
