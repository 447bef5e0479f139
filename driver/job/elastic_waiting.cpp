// What an elastic job waits for and what has changed, in words. Nothing here changes anything.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "driver/job/elastic_job.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMaxTroubles = 3;
constexpr std::size_t kMaxChanges = 4;  // in one line

std::string counted(std::size_t number, std::string_view what) {
  return cat(number, " ", what, number == 1 ? "" : "s");
}

}  // namespace

// "rests for 10 s"
std::string ElasticJob::rest_text(TimePoint until) const {
  if (until <= now_) return "is tried again";
  if (until == kNever) return "is not used again";
  return cat("rests for ",
             seconds_text(std::chrono::ceil<std::chrono::milliseconds>(until - now_)));
}

std::string ElasticJob::members_text() const {
  std::vector<int> ranks;
  for (const auto& member : effective_.members) {
    if (!has_ended(worker(member.incarnation).state)) ranks.push_back(member.rank);
  }
  if (ranks.empty()) return "nobody";
  return cat(ranks.size() == 1 ? "rank " : "ranks ", range_text(ranks));
}

// "3 slots are ready on 2 of 4 hosts", of those that may be used now.
std::string ElasticJob::room_text() const {
  if (!found_) return "no host is known yet";
  std::size_t slots = 0;
  std::size_t ready = 0;
  for (const auto& found : *found_) {
    const auto visit = visit_of_.find(found.host.name);
    if (visit == visit_of_.end() || !usable(visit->second)) continue;
    const auto resting = budget_.resting_slots(found.host.name, now_);
    const int all = slots_of(found.host);
    const auto aside =
        std::count_if(resting.begin(), resting.end(), [&](int slot) { return slot < all; });
    if (budget_.rests(found.host.name, now_) || aside >= all) continue;
    ++ready;
    slots += static_cast<std::size_t>(all - aside);
  }
  return cat(counted(slots, "slot"), slots == 1 ? " is" : " are", " ready on ", ready, " of ",
             counted(found_->size(), "host"));
}

// " (b: connect: refused)"
std::string ElasticJob::troubles_text() const {
  std::vector<std::string> parts;
  for (const auto& [name, trouble] : troubles_) {
    if (parts.size() == kMaxTroubles) break;
    parts.push_back(cat(name, ": ", name_of(trouble.step), ": ", trouble.message));
  }
  std::size_t all = troubles_.size();
  for (const auto& [place, how] : slot_troubles_) {
    const auto& [host, slot] = place;
    const bool rests = budget_.rests(host, now_) || budget_.slot_rest_ends(host, slot) > now_;
    if (!rests || !is_found(host)) continue;
    ++all;
    if (parts.size() < kMaxTroubles) {
      parts.push_back(cat(host, "#", slot, " is set aside, since it ", how));
    }
  }
  if (parts.empty()) return {};
  if (all > parts.size()) parts.push_back(cat(all - parts.size(), " more"));
  return cat(" (", join(parts, "; "), ")");
}

std::string ElasticJob::short_text() const {
  const int least = std::max(options_.limits.least, 1);
  return cat("at least ", counted(static_cast<std::size_t>(least), "worker"), " needed, ",
             room_text(), troubles_text());
}

std::string ElasticJob::gathering_text(TimePoint now) const {
  if (!found_) return cat("the first hosts to be discovered", left_text(state_deadline_, now));
  std::map<Step, std::vector<std::string>> steps;
  for (const auto& [name, index] : visit_of_) {
    const ElasticHost& host = hosts_[index];
    const bool on_its_way = host.state == HostState::starting ||
                            (host.state == HostState::ready && host.address.empty());
    if (on_its_way) steps[host.step.value_or(Step::resolve)].push_back(name);
  }
  std::vector<std::string> parts;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    parts.push_back(cat(names_text(step->second), " (", name_of(step->first), ")"));
  }
  const std::string who = parts.empty() ? "more hosts" : join(parts, ", ");
  return cat(who, " to be ready: ", short_text(), left_text(state_deadline_, now));
}

std::string ElasticJob::change_text(const WorldDocument& next) const {
  if (effective_.members.empty()) return {};
  const auto members_of = [](const WorldDocument& world) {
    std::set<Incarnation> members;
    for (const auto& member : world.members) members.insert(member.incarnation);
    return members;
  };
  const auto before = members_of(effective_);
  const auto after = members_of(next);
  std::vector<std::pair<std::string, std::vector<std::string>>> changes;  // what, and whom
  const auto add = [&](const std::string& what, const std::string& who) {
    const auto same = std::find_if(changes.begin(), changes.end(),
                                   [&](const auto& change) { return change.first == what; });
    if (same == changes.end()) {
      changes.push_back({what, {who}});
    } else {
      same->second.push_back(who);
    }
  };
  for (const auto& member : effective_.members) {
    if (after.count(member.incarnation) != 0) continue;
    const ElasticWorker& one = worker(member.incarnation);
    const bool left = one.how.empty();
    add(!left                   ? one.how
        : !one.leaves.empty()   ? cat("left: ", one.leaves)
        : one.well || one.quiet ? "ended"
                                : "left",
        member.worker());
  }
  for (const auto& member : next.members) {
    if (before.count(member.incarnation) != 0) continue;
    add("joined", member.worker());
  }
  std::vector<std::string> parts;
  for (const auto& [what, who] : changes) {
    if (parts.size() == kMaxChanges) {
      parts.push_back(cat(changes.size() - parts.size(), " more changes"));
      break;
    }
    const bool many = who.size() > 1 && what.starts_with("was ");
    parts.push_back(cat(names_text(who), many ? " were " : " ", many ? what.substr(4) : what));
  }
  return join(parts, "; ");
}

std::string ElasticJob::waiting_for(TimePoint now) const {
  std::vector<std::string> parts;
  std::vector<std::string> closing;
  std::vector<std::string> dropping;
  TimePoint close_deadline = kNever;
  TimePoint drop_deadline = kNever;
  for (const auto& host : hosts_) {
    if (host.state == HostState::closing) {
      closing.push_back(host.name);
      close_deadline = std::min(close_deadline, host.deadline);
    } else if (host.state == HostState::dropping) {
      dropping.push_back(host.name);
      drop_deadline = std::min(drop_deadline, host.deadline);
    }
  }
  std::size_t coming = 0;
  std::size_t out = 0;
  for (const std::size_t index : live_) {
    if (workers_[index].standing == Standing::coming) ++coming;
    const bool never_came =
        workers_[index].standing == Standing::warm && !workers_[index].leaves.empty();
    if (workers_[index].standing == Standing::out || never_came) ++out;
  }
  switch (state_) {
    case ElasticState::planned:
      return "to be begun";
    case ElasticState::gathering:
      return gathering_text(now);
    case ElasticState::training:
      if (something_is_proposed()) {
        parts.push_back(cat("a commit, to go over to generation ", proposed_.rbegin()->first));
      }
      parts.push_back(cat(members_text(), " of ", effective_.members.size(), " to exit"));
      break;
    case ElasticState::waiting:
      parts.push_back(cat("replacements: ", short_text(), left_text(state_deadline_, now)));
      break;
    case ElasticState::ending:
      parts.push_back(cat(members_text(), " to exit, since the work is done"));
      break;
    case ElasticState::stopping:
      if (!live_.empty()) {
        parts.push_back(cat(counted(live_.size(), "worker"), " to stop, with a grace of ",
                            seconds_text(options_.job.grace), left_text(state_deadline_, now)));
      }
      break;
    case ElasticState::killing:
      if (!live_.empty()) {
        parts.push_back(cat(counted(live_.size(), "worker"), " to be gone after SIGKILL",
                            left_text(state_deadline_, now)));
      }
      break;
    case ElasticState::closing:
      break;
    case ElasticState::finished:
      return "";
  }
  if (runs() && coming > 0) parts.push_back(cat(counted(coming, "new worker"), " to be ready"));
  if (runs() && out > 0) parts.push_back(cat(counted(out, "worker"), " to leave"));
  const auto agents = [](const std::vector<std::string>& names) {
    return cat(names.size() == 1 ? "the agent on " : "the agents on ", names_text(names));
  };
  if (!closing.empty()) {
    parts.push_back(cat(agents(closing), " to clean up and leave", left_text(close_deadline, now)));
  }
  if (!dropping.empty()) {
    parts.push_back(cat(agents(dropping), ", given up, to be gone", left_text(drop_deadline, now)));
  }
  if (heartbeats_.delaying()) {
    parts.push_back(cat(heartbeats_.delaying_everybody() ? "any host" : "any other machine",
                        " to be heard", left_text(heartbeats_.delay_ends(), now)));
  }
  return join(parts, " and ");
}

}  // namespace hvd::driver
