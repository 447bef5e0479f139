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

TimePoint SlotBudget::worker_failed(const std::string& name, int number, TimePoint now,
                                    double random) {
  Host& host = hosts_[name];
  Slot& slot = host.slots[number];
  const double failures = grow(slot.failures, now, options_.forget_after);
  if (host.rest.ends > now) return host.rest.ends;
  if (slot.rest.ends > now) return slot.rest.ends;
  if (options_.policy == FailurePolicy::host) return begin(host.rest, now, random, options_);
  if (failures <= options_.restarts) return now;
  return begin(number == kTheHostItself ? host.rest : slot.rest, now, random, options_);
}

TimePoint SlotBudget::set_aside(const std::string& name, int number, TimePoint now, double random) {
  Rest& rest = hosts_[name].slots[number].rest;
  BudgetOptions options = options_;
  if (options.longest.count() == 0) options.longest = BudgetOptions().longest;
  return rest.ends > now ? rest.ends : begin(rest, now, random, options);
}

TimePoint SlotBudget::host_failed(const std::string& name, TimePoint now, double random) {
  Rest& rest = hosts_[name].rest;
  return rest.ends > now ? rest.ends : begin(rest, now, random, options_);
}

TimePoint SlotBudget::prolong_rest(const std::string& name, TimePoint until) {
  Rest& rest = hosts_[name].rest;
  return rest.ends = std::max(rest.ends, until);
}

TimePoint SlotBudget::begin(Rest& rest, TimePoint now, double random,
                            const BudgetOptions& options) {
  const double before = grow(rest.count, now, options.forget_after * kRestsAreRememberedLonger) - 1;
  if (options.longest.count() == 0) return rest.ends = kNever;
  const double doublings = std::min(std::round(before), kMaxDoublings);
  const std::chrono::duration<double, std::milli> shortest = options.shortest;
  const std::chrono::duration<double, std::milli> longest = options.longest;
  // Slots and hosts that failed together come back one by one.
  const auto time = std::min(shortest * std::exp2(doublings) + shortest * random, longest);
  return rest.ends = now + std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

bool SlotBudget::is_over(const Count& count, TimePoint now,
                         std::chrono::milliseconds forget_after) {
  const std::chrono::duration<double> since = now - count.as_of;
  const std::chrono::duration<double> each = forget_after;
  return count.value <= 0 || (forget_after.count() > 0 && since >= count.value * each);
}

bool SlotBudget::is_over(const Rest& rest, TimePoint now) const {
  return rest.ends <= now &&
         is_over(rest.count, now, options_.forget_after * kRestsAreRememberedLonger);
}

void SlotBudget::forget_old(TimePoint now) {
  for (auto& [name, host] : hosts_) {
    std::erase_if(host.slots, [&](const auto& numbered) {
      const Slot& slot = numbered.second;
      return is_over(slot.failures, now, options_.forget_after) && is_over(slot.rest, now);
    });
  }
  std::erase_if(hosts_, [&](const auto& named) {
    return named.second.slots.empty() && is_over(named.second.rest, now);
  });
}

bool SlotBudget::rests(const std::string& host, TimePoint now) const {
  return rest_ends(host) > now;
}

TimePoint SlotBudget::rest_ends(const std::string& name) const {
  const auto host = hosts_.find(name);
  return host == hosts_.end() ? TimePoint() : host->second.rest.ends;
}

std::vector<int> SlotBudget::resting_slots(const std::string& name, TimePoint now) const {
  std::vector<int> resting;
  const auto host = hosts_.find(name);
  if (host == hosts_.end()) return resting;
  for (const auto& [number, slot] : host->second.slots) {
    if (number != kTheHostItself && slot.rest.ends > now) resting.push_back(number);
  }
  return resting;
}

TimePoint SlotBudget::slot_rest_ends(const std::string& name, int slot) const {
  const auto host = hosts_.find(name);
  if (host == hosts_.end()) return TimePoint();
  const auto found = host->second.slots.find(slot);
  return found == host->second.slots.end() ? TimePoint() : found->second.rest.ends;
}

int SlotBudget::failures(const std::string& name, int slot) const {
  const auto host = hosts_.find(name);
  if (host == hosts_.end()) return 0;
  const auto found = host->second.slots.find(slot);
  return found == host->second.slots.end()
             ? 0
             : static_cast<int>(std::ceil(found->second.failures.value));
}

TimePoint SlotBudget::next_end(TimePoint now) const {
  TimePoint next = kNever;
  const auto look = [&](const Rest& rest) {
    if (rest.ends > now) next = std::min(next, rest.ends);
  };
  for (const auto& [name, host] : hosts_) {
    look(host.rest);
    for (const auto& [number, slot] : host.slots) look(slot.rest);
  }
  return next;
}

}  // namespace hvd::driver
