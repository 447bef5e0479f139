#include "driver/job/slot_budget.h"

#include <algorithm>
#include <cmath>

namespace hvd::driver {
namespace {

constexpr int kRestsAreRememberedLonger = 10;  // than failures
constexpr double kMaxDoublings = 40;           // of a time: beyond any limit

}  // namespace

// One more, after what was forgotten since the last.
double SlotBudget::grow(Count& count, TimePoint now, std::chrono::milliseconds forget_after) {
  if (count.value > 0 && forget_after.count() > 0) {
    const std::chrono::duration<double> since = now - count.as_of;
    const std::chrono::duration<double> each = forget_after;
    count.value = std::max(0.0, count.value - since / each);
  }
  count.as_of = now;
  return count.value += 1;
}

TimePoint SlotBudget::worker_failed(const std::string& name, int slot, TimePoint now,
                                    double random) {
  Host& host = hosts_[name];
  const double failures = grow(host.failures[slot], now, options_.forget_after);
  if (host.rest_ends > now) return host.rest_ends;
  const bool too_many = options_.policy == FailurePolicy::host || failures > options_.restarts;
  return too_many ? rest(host, now, random) : now;
}

TimePoint SlotBudget::host_failed(const std::string& name, TimePoint now, double random) {
  Host& host = hosts_[name];
  return host.rest_ends > now ? host.rest_ends : rest(host, now, random);
}

TimePoint SlotBudget::rest(Host& host, TimePoint now, double random) {
  const double before =
      grow(host.rests, now, options_.forget_after * kRestsAreRememberedLonger) - 1;
  if (options_.longest.count() == 0) return host.rest_ends = kNever;
  const double doublings = std::min(std::round(before), kMaxDoublings);
  const std::chrono::duration<double, std::milli> shortest = options_.shortest;
  const std::chrono::duration<double, std::milli> longest = options_.longest;
  // Hosts that failed together come back one by one.
  const auto time = std::min(shortest * std::exp2(doublings) + shortest * random, longest);
  return host.rest_ends = now + std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

bool SlotBudget::rests(const std::string& host, TimePoint now) const {
  return rest_ends(host) > now;
}

TimePoint SlotBudget::rest_ends(const std::string& name) const {
  const auto host = hosts_.find(name);
  return host == hosts_.end() ? TimePoint() : host->second.rest_ends;
}

TimePoint SlotBudget::next_end(TimePoint now) const {
  TimePoint next = kNever;
  for (const auto& [name, host] : hosts_) {
    if (host.rest_ends > now) next = std::min(next, host.rest_ends);
  }
  return next;
}

}  // namespace hvd::driver
