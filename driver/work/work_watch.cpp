#include "driver/work/work_watch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>
#include <variant>

#include "base/text.h"
#include "driver/job/job_io.h"

namespace hvd::driver {
namespace {

// Workers may report anything; no state is larger.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;

}  // namespace

std::string slow_text(const std::vector<SlowRankText>& of_one_host) {
  std::vector<int> ranks;
  double share = 0;
  for (const auto& one : of_one_host) {
    ranks.push_back(one.rank);
    share = std::max(share, one.share);
  }
  const SlowRankText& first = of_one_host.front();
  const bool several = ranks.size() > 1;
  return cat(ranks_text(ranks), " on ", several ? cat("host ", first.host) : first.worker,
             several ? " are" : " is", " slow: the other ranks wait for ", several ? "them" : "it",
             " for ", std::lround(share * 100), " % of the time");
}

std::optional<event::WorldEntered> WorkWatch::reported(HostIndex host,
                                                       const agent_link::WorkReports& reports,
                                                       TimePoint now) {
  std::optional<event::WorldEntered> entered;
  for (const auto& report : reports.workers) {
    const std::size_t index = job_.index_of(report.incarnation);
    if (index >= job_.workers().size()) continue;
    const JobWorker& worker = job_.workers()[index];
    if (worker.host != host || has_ended(worker.state)) continue;
    book_.add(report.incarnation, report.reading, now);

    const WorldEntry& entry = report.reading.entry;
    if (entry.received_bytes < entry.expected_bytes) {
      receiving_.insert(report.incarnation);
    } else {
      receiving_.erase(report.incarnation);
    }

    if (worker.membership != MemberStatus::member) continue;
    const auto last = entries_.add(job_.world(), report.incarnation, report.reading.entry);
    if (last) entered = last;
  }
  return entered;
}

std::optional<event::Saving> WorkWatch::saving(HostIndex host,
                                               const agent_link::WorkReports& reports) {
  for (const auto& report : reports.workers) {
    const StateSaving& saving = report.reading.saving;
    const std::size_t index = job_.index_of(report.incarnation);
    if (saving.total_bytes == 0 || index >= job_.workers().size()) continue;
    if (job_.workers()[index].host != host) continue;
    StateSaving& before = saving_[report.incarnation];
    if (std::exchange(before, saving) == saving) continue;
    return event::Saving{host, report.incarnation, saving.total_bytes, saving.written_bytes,
                         saving.is_in_place};
  }
  return std::nullopt;
}

std::optional<WorkWatch::Transfer> WorkWatch::transfer() const {
  Transfer transfer;
  for (const Incarnation incarnation : receiving_) {
    if (!job_.workers()[job_.index_of(incarnation)].is_live_member()) continue;
    const WorldEntry& entry = book_.newest(incarnation)->entry;
    if (entry.generation != job_.world().generation) continue;
    ++transfer.workers;
    transfer.expected += std::min(entry.expected_bytes, kMostBytes);
    transfer.received += std::min(entry.received_bytes, kMostBytes);
    transfer.per_second += book_.received_per_second(incarnation);
  }
  if (transfer.workers == 0) return std::nullopt;
  return transfer;
}

std::string transfer_text(const WorkWatch::Transfer& transfer) {
  const auto per_second =
      static_cast<std::uint64_t>(std::min(transfer.per_second, static_cast<double>(kMostBytes)));
  return cat(counted(transfer.workers, "worker"),
             " to receive the state: ", bytes_text(transfer.received), " of ",
             bytes_text(transfer.expected),
             per_second > 0 ? cat(", ", bytes_text(per_second), "/s") : "");
}

void WorkWatch::on_event(const Event& event) {
  if (const auto* const exited = std::get_if<event::Exited>(&event)) {
    const std::size_t index = job_.index_of(exited->incarnation);
    const bool has_gone = index < job_.workers().size() && has_ended(job_.workers()[index].state);
    if (has_gone) end(exited->incarnation);
    return;
  }
  // The workers of a host whose agent is gone are lost without a word.
  if (!std::holds_alternative<event::AgentGone>(event)) return;
  for (const auto& worker : job_.workers()) {
    if (has_ended(worker.state)) end(worker.member.incarnation);
  }
}

void WorkWatch::end(Incarnation incarnation) {
  book_.end(incarnation);
  receiving_.erase(incarnation);
  saving_.erase(incarnation);
}

std::vector<event::FoundSlow> WorkWatch::look(TimePoint now) {
  if (now < look_at_) return {};
  look_at_ = now + SlowRanks::kRound;

  std::vector<SlowRanks::Rank> world;
  for (const auto& member : job_.world().members) {
    world.push_back({member.incarnation, book_.newest(member.incarnation)});
  }

  std::vector<event::FoundSlow> found;
  std::map<std::string, std::vector<SlowRankText>> slow;  // by host
  for (const auto& change : slow_ranks_.look(world)) {
    const std::size_t index = job_.index_of(change.incarnation);
    if (index >= job_.workers().size()) continue;
    const WorldMember& member = job_.workers()[index].member;
    found.push_back({job_.workers()[index].host, change.incarnation, change.slow});
    if (change.slow) {
      slow[member.host].push_back({member.worker(), member.host, member.rank, change.share});
    } else {
      note_(cat(member.ranked(), " is slow no longer"));
    }
  }
  for (const auto& [host, ranks] : slow) warn_(slow_text(ranks));
  return found;
}

namespace {

// Workers may report anything. No part takes longer than this, so that sums and differences fit.
constexpr std::chrono::hours kLongest{24 * 365};

// Nor has a member a larger state.
constexpr std::uint64_t kMostReceived = std::uint64_t{1} << 46;

Duration time_of(std::uint64_t count) {
  constexpr std::chrono::nanoseconds kMost = kLongest;
  return std::chrono::nanoseconds(std::min(count, static_cast<std::uint64_t>(kMost.count())));
}

// Nor has it done more steps.
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 46;

event::WorldEntered event_of(Incarnation incarnation, const WorldEntry& entry) {
  event::WorldEntered entered;
  entered.generation = entry.generation;
  entered.slowest = incarnation;
  entered.leave = time_of(entry.leave_ns);
  entered.wait = time_of(entry.wait_ns);
  entered.connect = time_of(entry.connect_ns);
  entered.vote = time_of(entry.vote_ns);
  entered.sync = time_of(entry.sync_ns);
  entered.step = time_of(entry.step_ns);
  return entered;
}

}  // namespace

std::optional<event::WorldEntered> WorldEntries::add(const WorldDocument& world,
                                                     Incarnation incarnation,
                                                     const WorldEntry& entry) {
  if (entry.generation != world.generation || entry.step_ns == 0) return std::nullopt;
  if (generation_ != world.generation) {
    generation_ = world.generation;
    there_.clear();
    so_far_ = {};
  }
  if (!there_.insert(incarnation).second) return std::nullopt;

  const std::uint64_t received = so_far_.received + std::min(entry.received_bytes, kMostReceived);
  const std::uint64_t redone = std::max(so_far_.redone, std::min(entry.redone_steps, kMostSteps));
  const event::WorldEntered own = event_of(incarnation, entry);
  if (there_.size() == 1 || own.time() > so_far_.time()) so_far_ = own;
  so_far_.received = received;
  so_far_.redone = redone;
  if (there_.size() < world.members.size()) return std::nullopt;
  return so_far_;
}

}  // namespace hvd::driver
