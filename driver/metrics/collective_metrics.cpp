#include "driver/metrics/collective_metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

namespace hvd::driver {
namespace {

constexpr std::array<std::string_view, 3> kSummaryNames{"least", "mean", "most"};

std::array<std::string_view, kCollectives> names_of_kinds() {
  std::array<std::string_view, kCollectives> names;
  for (std::size_t kind = 0; kind < names.size(); ++kind) {
    names[kind] = kind_name(static_cast<Collective>(kind));
  }
  return names;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

CollectiveMetrics::CollectiveMetrics(prometheus::Registry& registry)
    : operations_(counter_family(registry, "hvd_collective_operations_total",
                                 "Tensors in collectives, of all workers, by kind."),
                  "kind", names_of_kinds()),
      bytes_(counter_family(registry, "hvd_collective_bytes_total",
                            "Bytes of the workers' own tensors in collectives, by kind."),
             "kind", names_of_kinds()),
      steps_per_second_(gauge_family(registry, "hvd_steps_per_second",
                                     "Steps of the program within the last seconds.")
                            .Add({})),
      waits_(gauge_family(registry, "hvd_rank_wait_ratio",
                          "Share of its time during which a rank waits for others: of the rank "
                          "that waits least, on average, of the one that waits most."),
             "rank", kSummaryNames),
      slow_ranks_(
          gauge_family(registry, "hvd_slow_ranks", "Ranks for which the others wait.").Add({})) {}

void CollectiveMetrics::look_at_totals(const WorkBook::Totals& totals) {
  for (std::size_t kind = 0; kind < totals.size(); ++kind) {
    operations_[kind].Increment(
        static_cast<double>(totals[kind].operations - seen_[kind].operations));
    bytes_[kind].Increment(static_cast<double>(totals[kind].bytes - seen_[kind].bytes));
  }
  seen_ = totals;
}

void CollectiveMetrics::look(const Job& job, const WorkWatch& work, TimePoint now) {
  look_at_totals(work.book().totals());

  std::vector<double> steps;
  std::vector<double> waits;
  int slow = 0;
  for (const auto& member : job.world().members) {
    if (work.slow_ranks().is_slow(member.incarnation)) ++slow;
    const auto rate = work.book().rate(member.incarnation, now);
    if (!rate) continue;
    steps.push_back(rate->steps);
    waits.push_back(rate->waited);
  }

  const bool is_known = !steps.empty();
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  steps_per_second_.Set(is_known ? mean(steps) : kUnknown);
  waits_[0].Set(is_known ? *std::min_element(waits.begin(), waits.end()) : kUnknown);
  waits_[1].Set(is_known ? mean(waits) : kUnknown);
  waits_[2].Set(is_known ? *std::max_element(waits.begin(), waits.end()) : kUnknown);
  slow_ranks_.Set(slow);
}

}  // namespace hvd::driver
