// What a job waits for, in words. driver/job/job.cpp decides; nothing here changes anything.
#include <algorithm>
#include <map>
#include <string_view>

#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

// What a host has to do, or what is to be done with it.
std::string_view to_be_done(Step step) {
  switch (step) {
    case Step::resolve:
      return "to be resolved";
    case Step::connect:
      return "to be connected";
    case Step::host_key:
      return "to show the right host key";
    case Step::authenticate:
      return "to authenticate";
    case Step::start_agent:
      return "to start the agent";
    case Step::change_directory:
      return "to change the directory";
    case Step::find_program:
      return "to find the program";
    case Step::reach:
      return "to reach the others";
  }
  return "to be ready";
}

}  // namespace

std::vector<int> Job::ranks_of(HostIndex host, bool unstarted_only) const {
  std::vector<int> ranks;
  for (const std::size_t index : hosts_[host].workers) {
    const JobWorker& worker = workers_[index];
    const bool unstarted =
        worker.state == WorkerState::planned || worker.state == WorkerState::launching;
    if (unstarted_only ? unstarted : !has_ended(worker.state)) ranks.push_back(worker.member.rank);
  }
  return ranks;
}

std::string Job::live_ranks_text() const {
  std::vector<int> live;
  for (const auto& worker : workers_) {
    if (!has_ended(worker.state)) live.push_back(worker.member.rank);
  }
  return live.size() == 1 ? cat("rank ", live.front(), " is")
                          : cat("ranks ", range_text(live), " are");
}

// ---- while hosts are made ready ----

// "h3 to authenticate (12 s left), h4 and h5 to be connected (8 s left) (12 of 50 hosts are ready)"
std::string Job::preparing_text(TimePoint now) const {
  struct Group {
    std::vector<std::string> names;
    TimePoint deadline = kNever;
  };
  std::map<Step, Group> groups;
  std::vector<std::string> without_turn;
  std::size_t ready = 0;
  for (const auto& host : hosts_) {
    if (host.state == HostState::ready && !host.trouble) ++ready;
    if (host.state != HostState::starting) continue;
    if (!host.step) {
      without_turn.push_back(host.name);
      continue;
    }
    Group& group = groups[*host.step];
    group.names.push_back(host.name);
    group.deadline = std::min(group.deadline, host.deadline);
  }
  std::vector<std::string> parts;
  if (state_ == JobState::choosing) {
    parts.push_back(
        cat("addresses by which all hosts reach each other", left_text(state_deadline_, now)));
  }
  // Who is nearest to being ready stands first.
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    parts.push_back(cat(names_text(group->second.names), " ", to_be_done(group->first),
                        left_text(group->second.deadline, now)));
  }
  if (!without_turn.empty()) {
    parts.push_back(cat(names_text(without_turn), " to have ",
                        without_turn.size() == 1 ? "its" : "their", " turn",
                        left_text(state_deadline_, now)));
  }
  std::string text = join(parts, ", ");
  if (seated_ == 1) return text;
  text += cat(" (", ready, " of ", seated_, ready == 1 ? " hosts is ready" : " hosts are ready");
  if (excluded_ > 0) text += cat(", ", excluded_, excluded_ == 1 ? " has failed" : " have failed");
  return text + ")";
}

// ---- all states ----

std::string Job::waiting_for(TimePoint now) const {
  const auto left = [now](TimePoint deadline) { return left_text(deadline, now); };
  const auto named = [](std::string_view one, const std::vector<std::string>& hosts) {
    return cat(one, hosts.size() == 1 ? "" : "s", " on ", names_text(hosts));
  };
  std::vector<std::string> closing;
  std::vector<std::string> dropping;
  std::vector<int> unstarted;
  std::vector<int> live;
  TimePoint worker_deadline = kNever;
  TimePoint close_deadline = kNever;
  TimePoint drop_deadline = kNever;
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    const JobHost& host = hosts_[index];
    if (host.state == HostState::closing) {
      closing.push_back(host.name);
      close_deadline = std::min(close_deadline, host.deadline);
    } else if (host.state == HostState::dropping) {
      dropping.push_back(host.name);
      drop_deadline = std::min(drop_deadline, host.deadline);
    } else if (host.state == HostState::ready && !preparing()) {
      for (const int rank : ranks_of(index, true)) unstarted.push_back(rank);
      for (const int rank : ranks_of(index, false)) live.push_back(rank);
      worker_deadline = std::min(worker_deadline, host.deadline);
    }
  }
  const auto ranks = [](const std::vector<int>& numbers) {
    return cat(numbers.size() == 1 ? "rank " : "ranks ", range_text(numbers));
  };
  std::vector<std::string> parts;
  switch (state_) {
    case JobState::planned:
      return "to be begun";
    case JobState::preparing:
    case JobState::choosing:
      return preparing_text(now);
    case JobState::starting:
      parts.push_back(ranks(unstarted) + " to be started" + left(worker_deadline));
      break;
    case JobState::running:
      parts.push_back(cat(ranks(live), " of ", workers_.size(), " to exit"));
      break;
    case JobState::stopping:
      if (!live.empty()) {
        parts.push_back(cat(ranks(live), " to stop, with a grace of ", seconds_text(options_.grace),
                            left(state_deadline_)));
      }
      break;
    case JobState::killing:
      if (!live.empty()) {
        parts.push_back(cat(ranks(live), " to be gone after SIGKILL", left(state_deadline_)));
      }
      break;
    case JobState::closing:
      if (!closing.empty()) {
        parts.push_back(named("the agent", closing) + " to clean up and leave" +
                        left(close_deadline));
      }
      break;
    case JobState::finished:
      return "";
  }
  if (!dropping.empty()) {
    parts.push_back(cat(named("the agent", dropping),
                        dropping.size() == 1 ? ", which was given up," : ", which were given up,",
                        " to be gone", left(drop_deadline)));
  }
  if (heartbeats_.delaying()) {
    parts.push_back(cat(heartbeats_.delaying_everybody() ? "any host" : "any other machine",
                        " to be heard", left(heartbeats_.delay_ends())));
  }
  return join(parts, " and ");
}

}  // namespace hvd::driver
