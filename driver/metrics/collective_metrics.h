// Metrics of the work of a job's workers, from what they report (driver/work/work_watch.h):
// operations and bytes of each kind of collective, steps, waits, slow ranks. For one thread.
#pragma once

#include "base/clock.h"
#include "base/collective.h"
#include "driver/metrics/families.h"
#include "driver/work/work_watch.h"

namespace hvd::driver {

class CollectiveMetrics {
 public:
  explicit CollectiveMetrics(prometheus::Registry& registry);

  void look(const Job& job, const WorkWatch& work, TimePoint now);

 private:
  static constexpr std::size_t kSummaries = 3;  // least, mean, most

  void look_at_totals(const WorkBook::Totals& totals);

  ByLabel<prometheus::Counter, kCollectives> operations_;
  ByLabel<prometheus::Counter, kCollectives> bytes_;
  prometheus::Gauge& steps_per_second_;
  ByLabel<prometheus::Gauge, kSummaries> waits_;
  prometheus::Gauge& slow_ranks_;
  WorkBook::Totals seen_{};
};

}  // namespace hvd::driver
