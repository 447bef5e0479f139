// The text about the events that an elastic job waits for and about its changes. Nothing here
// changes anything.
#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMaxChanges = 4;  // in one line

}  // namespace

// "rests for 10 s"
std::string Job::rest_text(TimePoint until) const {
  if (until <= now_) return "is tried again";
  if (until == kNever) return "is not used again";
  return cat("rests for ", seconds_text(until - now_));
}

std::string Job::members_text() const {
  std::vector<int> ranks;
  for (const auto& member : worlds_.in_force().members) {
    if (!has_ended(workers_.of(member.incarnation).state)) ranks.push_back(member.rank);
  }
  if (ranks.empty()) return "nobody";
  return ranks_text(ranks);
}

std::string Job::short_text() const {
  const int least = std::max(options_.elastic.limits.least, 1);
  return cat("at least ", counted(static_cast<std::size_t>(least), "worker"), " needed, ",
             roster_.room_text(now_), roster_.drained_text(), roster_.errors_text(now_));
}

// The job may begin, but still waits for the hosts that were named first.
std::string Job::begins_text(TimePoint now) const {
  const int wanted = options_.elastic.processes;
  return cat(
      wanted > 0 ? cat(counted(static_cast<std::size_t>(wanted), "worker"), " wanted, ") : "",
      roster_.room_text(now_), roster_.drained_text(), roster_.errors_text(now_),
      "; the job begins without more", left_text(begun_ + options_.start_timeout, now));
}

std::string Job::preparing_text(TimePoint now) const {
  if (!roster_.is_known())
    return cat("the first hosts to be discovered", left_text(deadlines_.state, now));
  std::map<Step, std::vector<std::string>> steps;
  for (const auto& [name, index] : hosts_.current()) {
    const JobHost& host = hosts_[index];
    const bool on_its_way = host.state == HostState::starting ||
                            (host.state == HostState::ready && host.address.empty());
    if (on_its_way) steps[host.step.value_or(Step::resolve)].push_back(name);
  }
  std::vector<std::string> parts;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    parts.push_back(cat(names_text(step->second), " (", name_of(step->first), ")"));
  }
  const std::string who = parts.empty() ? "more hosts" : join(parts, ", ");
  if (roster_.ready_slots(now_) >= std::max(options_.elastic.limits.least, 1)) {
    return cat(who, " to be ready: ", begins_text(now));
  }
  return cat(who, " to be ready: ", short_text(), left_text(deadlines_.state, now));
}

std::string Job::change_text(const WorldDocument& next) const {
  if (worlds_.in_force().members.empty()) return {};

  const auto members_of = [](const WorldDocument& world) {
    std::set<Incarnation> members;
    for (const auto& member : world.members) members.insert(member.incarnation);
    return members;
  };
  const auto before = members_of(worlds_.in_force());
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

  for (const auto& member : worlds_.in_force().members) {
    if (after.count(member.incarnation) != 0) continue;
    const JobWorker& one = workers_.of(member.incarnation);
    const bool left = one.how.empty();
    add(!left               ? one.how
        : one.is_to_leave() ? cat("left: ", one.why_it_leaves)
        : ended_well(one)   ? "ended"
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

// "ranks 1, 3 are", "2 workers are"
std::string Job::live_text() const {
  const std::size_t number = workers_.live().size();
  const std::string who = policy_.changes_world ? counted(number, "worker") : live_ranks_text();
  return cat(who, number == 1 ? " is" : " are");
}

std::string Job::live_ranks_text() const {
  std::vector<int> ranks;
  for (const std::size_t index : workers_.live()) ranks.push_back(workers_[index].member.rank);
  return ranks_text(ranks);
}

std::string Job::waiting_for(TimePoint clock) const {
  const TimePoint now = time_.own(clock);
  switch (state_) {
    case JobState::planned:
      return "to be begun";
    case JobState::preparing:
    case JobState::choosing:
      return policy_.discovers_hosts ? preparing_text(now) : list_text(now);
    case JobState::finished:
      return "";
    default:
      break;
  }
  std::vector<std::string> parts = worker_parts(now);
  for (std::string& part : agent_parts(now)) parts.push_back(std::move(part));
  const Heartbeats& heartbeats = hosts_.heartbeats();
  if (heartbeats.delaying()) {
    parts.push_back(cat(heartbeats.delaying_everybody() ? "any host" : "any other machine",
                        " to be heard", left_text(heartbeats.delay_ends(), now)));
  }
  return join(parts, " and ");
}

std::string Job::init_part(TimePoint now) const {
  const int rank = init_watch_.is_waiting() && runs() ? rank_that_waits() : -1;
  if (rank < 0) return {};
  std::vector<std::string> names;
  for (const std::size_t index : workers_.absent()) {
    const WorldMember& member = workers_[index].member;
    names.push_back(member.ranked());
  }
  return cat(names_text(names), " to call hvd::init, where rank ", rank, " waits",
             left_text(init_watch_.over_at(), now));
}

std::vector<std::string> Job::worker_parts(TimePoint now) const {
  std::vector<std::string> parts;
  const std::size_t live = workers_.live().size();
  const std::string left = left_text(deadlines_.state, now);
  // In a static job, those whose agents were not given up.
  std::vector<int> ranks;
  std::vector<int> unstarted;
  TimePoint start_deadline = kNever;
  for (HostIndex host = 0; host < hosts_.size() && !policy_.changes_world; ++host) {
    if (hosts_[host].state != HostState::ready) continue;
    for (const int rank : ranks_of(host, false)) ranks.push_back(rank);
    for (const int rank : ranks_of(host, true)) unstarted.push_back(rank);
    start_deadline = std::min(start_deadline, hosts_[host].deadline);
  }
  const bool any = policy_.changes_world ? live > 0 : !ranks.empty();
  const std::string who = policy_.changes_world ? counted(live, "worker") : ranks_text(ranks);

  switch (state_) {
    case JobState::starting:
      parts.push_back(cat(ranks_text(unstarted), " to be started", left_text(start_deadline, now)));
      break;
    case JobState::running:
      if (is_to_suspend() && suspension_.is_saving()) {
        parts.push_back(
            cat("the state to be on the disk (", suspension_.saving_text(), " written)"));
      } else if (is_to_suspend()) {
        parts.push_back(
            cat("a commit, at which the job ends", left_text(suspension_.deadline(), now)));
      } else if (worlds_.is_change_proposed()) {
        parts.push_back(
            cat("a commit, to go over to generation ", worlds_.proposed().rbegin()->first));
      }
      if (std::string init = init_part(now); !init.empty()) parts.push_back(std::move(init));
      parts.push_back(cat(policy_.changes_world ? members_text() : who, " of ",
                          worlds_.in_force().members.size(), " to exit"));
      break;
    case JobState::waiting:
      parts.push_back(cat("replacements: ", short_text(), left));
      break;
    case JobState::ending:
      parts.push_back(cat(members_text(), " to exit, since ",
                          suspension_.is_finished() ? "the job is suspended" : "the work is done"));
      break;
    case JobState::stopping:
      if (any) {
        parts.push_back(cat(who, " to stop, with a grace of ", seconds_text(options_.grace), left));
      }
      break;
    case JobState::killing:
      if (any) parts.push_back(cat(who, " to be gone after SIGKILL", left));
      break;
    default:
      break;
  }
  if (!runs()) return parts;

  std::size_t joining = 0;
  std::size_t leaving = 0;
  for (const std::size_t index : workers_.live()) {
    const JobWorker& worker = workers_[index];
    const bool never_came = worker.membership == MemberStatus::standby && worker.is_to_leave();
    if (worker.membership == MemberStatus::joining) ++joining;
    if (worker.membership == MemberStatus::removed || never_came) ++leaving;
  }
  if (joining > 0) parts.push_back(cat(counted(joining, "new worker"), " to be ready"));
  if (leaving > 0) parts.push_back(cat(counted(leaving, "worker"), " to leave"));
  return parts;
}

std::vector<std::string> Job::agent_parts(TimePoint now) const {
  std::vector<std::string> sought;
  std::vector<std::string> closing;
  std::vector<std::string> dropping;
  TimePoint close_deadline = kNever;
  TimePoint drop_deadline = kNever;
  // Nobody waits for the agent of a host that a list does not need.
  const bool shows_closing = policy_.discovers_hosts || state_ == JobState::closing;
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    const JobHost& host = hosts_[index];
    if (hosts_.is_sought(index)) {
      sought.push_back(host.name);
    } else if (host.state == HostState::closing && shows_closing) {
      closing.push_back(host.name);
      close_deadline = std::min(close_deadline, host.deadline);
    } else if (host.state == HostState::dropping) {
      dropping.push_back(host.name);
      drop_deadline = std::min(drop_deadline, host.deadline);
    }
  }

  const auto agents = [](const std::vector<std::string>& names) {
    return cat(names.size() == 1 ? "the agent on " : "the agents on ", names_text(names));
  };
  std::vector<std::string> parts;
  if (!sought.empty()) parts.push_back(cat(agents(sought), " to be found again"));
  if (!closing.empty()) {
    parts.push_back(cat(agents(closing), " to clean up and leave", left_text(close_deadline, now)));
  }
  if (dropping.empty()) return parts;
  const char* const given_up = policy_.discovers_hosts ? ", given up,"
                               : dropping.size() == 1  ? ", which was given up,"
                                                       : ", which were given up,";
  parts.push_back(cat(agents(dropping), given_up, " to be gone", left_text(drop_deadline, now)));
  return parts;
}

}  // namespace hvd::driver
