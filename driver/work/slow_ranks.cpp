#include "driver/work/slow_ranks.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hvd::driver {
namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

// The median of all values but one: `sorted` without one that is equal to `own`.
double median_of_others(const std::vector<double>& sorted, double own) {
  const auto place = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), own) -
                                              sorted.begin());
  const std::size_t others = sorted.size() - 1;
  const auto at = [&](std::size_t index) { return sorted[index < place ? index : index + 1]; };
  return others % 2 == 1 ? at(others / 2) : (at(others / 2 - 1) + at(others / 2)) / 2;
}

}  // namespace

bool SlowRanks::is_same_world(const std::vector<Rank>& world) const {
  return world.size() == records_.size() &&
         std::all_of(world.begin(), world.end(),
                     [this](const Rank& rank) { return records_.contains(rank.incarnation); });
}

void SlowRanks::begin(const std::vector<Rank>& world) {
  std::map<std::uint64_t, Record> records;
  for (const auto& rank : world) {
    Record& record = records[rank.incarnation];
    if (world.size() < 2) continue;  // nobody waits for it
    record.slow = is_slow(rank.incarnation);
    record.share = lateness(rank.incarnation);
  }
  records_ = std::move(records);
}

bool SlowRanks::round_is_over(const WorkReading& begin, const WorkReading& now) {
  const auto least = static_cast<std::uint64_t>(duration_cast<nanoseconds>(kRound).count());
  if (now.time_ns < begin.time_ns + least) return false;
  if (now.steps > begin.steps) return true;
  // A program that gives its tensors new names every time has no steps that could be counted.
  const bool has_no_steps = now.time_ns >= begin.time_ns + kLongestStep * least;
  return has_no_steps && now.operations() > begin.operations();
}

std::vector<SlowRanks::Change> SlowRanks::look(const std::vector<Rank>& world) {
  const bool all_report = std::all_of(world.begin(), world.end(),
                                      [](const Rank& rank) { return rank.newest != nullptr; });
  if (!is_same_world(world) || world.size() < 2) begin(world);
  if (world.size() < 2 || !all_report) return {};
  // Rounds begin when all have reported.
  const bool has_begun = std::all_of(records_.begin(), records_.end(),
                                     [](const auto& one) { return one.second.begin.time_ns != 0; });
  if (!has_begun) {
    for (const auto& rank : world) records_.at(rank.incarnation).begin = *rank.newest;
    return {};
  }

  const bool is_over = std::all_of(world.begin(), world.end(), [this](const Rank& rank) {
    return round_is_over(records_.at(rank.incarnation).begin, *rank.newest);
  });
  if (!is_over) return {};
  end_round(world);

  std::vector<Change> changes;
  for (auto& [incarnation, record] : records_) {
    const auto late = static_cast<std::size_t>(std::count_if(
        record.late.begin(), record.late.end(), [](double share) { return share >= kLate; }));
    const bool slow = record.slow ? late > 0 || record.late.size() < kRounds
                                  : late >= kMostRounds && lateness(incarnation) >= kLate;
    if (slow == record.slow) continue;
    record.slow = slow;
    changes.push_back({incarnation, slow, lateness(incarnation)});
  }
  return changes;
}

void SlowRanks::end_round(const std::vector<Rank>& world) {
  std::map<std::uint64_t, double> waited;
  std::vector<double> sorted;
  for (const auto& rank : world) {
    const WorkReading& begin = records_.at(rank.incarnation).begin;
    const double share = std::min(static_cast<double>(rank.newest->waited_ns - begin.waited_ns) /
                                      static_cast<double>(rank.newest->time_ns - begin.time_ns),
                                  1.0);
    waited[rank.incarnation] = share;
    sorted.push_back(share);
  }
  std::sort(sorted.begin(), sorted.end());

  for (const auto& rank : world) {
    Record& record = records_.at(rank.incarnation);
    const double own = waited.at(rank.incarnation);
    record.late.push_back(median_of_others(sorted, own) - own);
    if (record.late.size() > kRounds) record.late.pop_front();
    record.begin = *rank.newest;
  }
}

double SlowRanks::lateness(std::uint64_t incarnation) const {
  const auto found = records_.find(incarnation);
  if (found == records_.end()) return 0;
  if (found->second.late.empty()) return found->second.share;
  const auto& late = found->second.late;
  const double mean =
      std::accumulate(late.begin(), late.end(), 0.0) / static_cast<double>(late.size());
  return std::max(mean, 0.0);
}

bool SlowRanks::is_slow(std::uint64_t incarnation) const {
  const auto found = records_.find(incarnation);
  return found != records_.end() && found->second.slow;
}

}  // namespace hvd::driver
