#include "driver/job/common_cause.h"

#include <algorithm>
#include <csignal>
#include <set>

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kManyHosts = 3;
constexpr std::size_t kManySlots = 3;
// It is chance which of two rules finds that first.
constexpr const char* kNobodyJoined = "no worker got as far as joining the others";

std::size_t hosts_of(const std::vector<CommonCause::Failed>& failures) {
  std::set<std::string> hosts;
  for (const auto& one : failures) hosts.insert(one.place.first);
  return hosts.size();
}

std::size_t slots_of(const std::vector<CommonCause::Failed>& failures) {
  std::set<CommonCause::Place> slots;
  for (const auto& one : failures) slots.insert(one.place);
  return slots.size();
}

std::string places_text(std::size_t slots, std::size_t hosts) {
  return cat(slots, slots == 1 ? " slot" : " slots", " of ", hosts,
             hosts == 1 ? " host" : " hosts");
}

bool is_in(const std::vector<CommonCause::Failed>& failures, const CommonCause::Place& place) {
  return std::any_of(failures.begin(), failures.end(),
                     [&](const auto& one) { return one.place == place; });
}

}  // namespace

bool comes_from_outside(int signal_number) {
  return signal_number == SIGKILL || signal_number == SIGTERM || signal_number == SIGINT ||
         signal_number == SIGHUP;
}

void CommonCause::launched(Incarnation worker, const Place& place) {
  fresh_.emplace(worker, place);
}

void CommonCause::lost(Incarnation worker) { fresh_.erase(worker); }

void CommonCause::joined(Incarnation worker) {
  fresh_.erase(worker);
  anybody_joined_ = true;
  forget_fresh();
}

void CommonCause::forget_fresh() {
  fresh_failures_.clear();
  failed_worlds_.clear();
}

std::optional<CommonCause::Verdict> CommonCause::failed(const Failed& failure,
                                                        const Situation& situation, TimePoint now) {
  if (fresh_.erase(failure.worker) != 0) {
    const bool differs = !fresh_failures_.empty() && fresh_failures_.front().how != failure.how;
    if (anybody_joined_ && differs) fresh_failures_.clear();
    if (!is_in(fresh_failures_, failure.place)) fresh_failures_.push_back(failure);
    if (anybody_joined_) return judge_fresh(situation);
    note_world(failure);
    const auto fault = judge_fresh(situation);
    return fault ? fault : judge_worlds(situation);
  }
  if (situation.outlives_world) return std::nullopt;
  while (!recent_.empty() && recent_.front().at + together_ < now) recent_.pop_front();
  recent_.push_back({now, failure, situation});
  return judge_together();
}

void CommonCause::note_world(const Failed& failure) {
  const bool is_known =
      !failed_worlds_.empty() && failed_worlds_.back().generation == failure.generation;
  if (failure.generation == 0 || is_known) return;
  if (!failed_worlds_.empty() && failed_worlds_.front().how != failure.how) failed_worlds_.clear();
  failed_worlds_.push_back(failure);
}

// A worker that is on its way in a slot where one has failed already is another try, and may fail
// as well.
bool CommonCause::all_started_have_failed() const {
  return std::all_of(fresh_.begin(), fresh_.end(),
                     [this](const auto& one) { return is_in(fresh_failures_, one.second); });
}

std::optional<CommonCause::Verdict> CommonCause::judge_fresh(const Situation& situation) const {
  const std::size_t slots = fresh_failures_.size();
  const std::size_t hosts = hosts_of(fresh_failures_);
  const std::size_t usable = std::max<std::size_t>(situation.hosts, 1);
  if (!all_started_have_failed()) return std::nullopt;
  const Incarnation first = fresh_failures_.front().worker;
  if (!anybody_joined_) {
    if (hosts < std::min<std::size_t>(usable, 2)) return std::nullopt;
    // With so few to choose from others may have been left out.
    const std::size_t enough = std::min(kManySlots, std::max<std::size_t>(situation.slots, 1));
    if (hosts == 1 && slots < enough) return std::nullopt;
    return Verdict{kNobodyJoined, first};
  }
  const bool everywhere = slots >= kManySlots && hosts >= std::min(kManyHosts, usable);
  if (!situation.too_few || !everywhere) return std::nullopt;
  return Verdict{cat("workers that were started in ", places_text(slots, hosts),
                     " all failed this way before they joined the others"),
                 first};
}

std::optional<CommonCause::Verdict> CommonCause::judge_worlds(const Situation& situation) const {
  if (failed_worlds_.size() <= restarts_) return std::nullopt;
  const std::size_t slots = slots_of(failed_worlds_);
  const std::size_t hosts = hosts_of(failed_worlds_);
  if (slots < std::min(kManySlots, situation.slots)) return std::nullopt;
  if (hosts < std::min(kManyHosts, situation.hosts)) return std::nullopt;
  return Verdict{
      cat(kNobodyJoined, ", and ", failed_worlds_.size(),
          " worlds failed this way one after the other, first in ", places_text(slots, hosts)),
      failed_worlds_.front().worker};
}

std::optional<CommonCause::Verdict> CommonCause::judge_together() const {
  // As large as the world was when it began: each failure makes it smaller.
  std::size_t world_size = 0;
  std::size_t world_hosts = 0;
  std::vector<Failed> same;
  for (const auto& one : recent_) {
    world_size = std::max(world_size, one.situation.world_size);
    world_hosts = std::max(world_hosts, one.situation.world_hosts);
    const bool is_same = one.failure.how == recent_.back().failure.how;
    if (is_same && !is_in(same, one.failure.place)) same.push_back(one.failure);
  }
  if (same.size() < kManySlots || same.size() * 4 < world_size * 3) return std::nullopt;
  const std::size_t hosts = hosts_of(same);
  if (hosts < std::min<std::size_t>(world_hosts, 2)) return std::nullopt;
  // Some may have failed in the place of others that had failed before.
  return Verdict{cat("workers in ", places_text(same.size(), hosts),
                     " failed this way at once, in a world of ", world_size),
                 same.front().worker};
}

}  // namespace hvd::driver
