// Short forms for making families of metrics in a registry. All names begin with hvd_ and follow
// the conventions of Prometheus: base units, _total for counters.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hvd::driver {

inline double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }

inline prometheus::Family<prometheus::Counter>& counter_family(prometheus::Registry& registry,
                                                               const std::string& name,
                                                               const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

inline prometheus::Family<prometheus::Gauge>& gauge_family(prometheus::Registry& registry,
                                                           const std::string& name,
                                                           const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

inline prometheus::Family<prometheus::Histogram>& histogram_family(prometheus::Registry& registry,
                                                                   const std::string& name,
                                                                   const std::string& help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

// From the few milliseconds in which losses are gathered to a wait for new machines.
inline const prometheus::Histogram::BucketBoundaries kChangeBuckets{
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900};

// One metric for each value of a label, all there from the beginning, so that a rate can be taken
// of the first increase. `names` are the label's values, by index.
template <typename Metric, std::size_t N>
class ByLabel {
 public:
  template <typename... Args>
  ByLabel(prometheus::Family<Metric>& family, const std::string& label,
          const std::array<std::string_view, N>& names, const Args&... args) {
    for (std::size_t i = 0; i < N; ++i) {
      metrics_[i] = &family.Add({{label, std::string(names[i])}}, args...);
    }
  }

  template <typename Index>
  Metric& operator[](Index index) const {
    return *metrics_[static_cast<std::size_t>(index)];
  }

 private:
  std::array<Metric*, N> metrics_{};
};

// The names of the first N values of an enumeration of states.
template <typename State, std::size_t N>
std::array<std::string_view, N> names_of_states() {
  std::array<std::string_view, N> names;
  for (std::size_t i = 0; i < N; ++i) names[i] = name_of(static_cast<State>(i));
  return names;
}

}  // namespace hvd::driver
