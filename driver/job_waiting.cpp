// What a job waits for, in words. driver/job.cpp decides; nothing here changes anything.
#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "driver/job.h"

namespace hvd::driver {

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

std::string Job::waiting_for(TimePoint now) const {
  const auto left = [now](TimePoint deadline) {
    if (deadline == kNever) return std::string();
    const auto rest = std::max(Duration::zero(), deadline - now);
    return cat(" (", seconds_text(std::chrono::ceil<std::chrono::milliseconds>(rest)), " left)");
  };
  const auto named = [](std::string_view one, const std::vector<std::string>& hosts) {
    return cat(one, hosts.size() == 1 ? "" : "s", " on ", join(hosts, ", "));
  };
  std::vector<std::string> starting;
  std::vector<std::string> closing;
  std::vector<std::string> dropping;
  std::vector<int> unstarted;
  std::vector<int> live;
  TimePoint start_deadline = kNever;
  TimePoint worker_deadline = kNever;
  TimePoint close_deadline = kNever;
  TimePoint drop_deadline = kNever;
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    const JobHost& host = hosts_[index];
    if (host.state == HostState::starting) {
      starting.push_back(host.name);
      start_deadline = std::min(start_deadline, host.deadline);
    } else if (host.state == HostState::closing) {
      closing.push_back(host.name);
      close_deadline = std::min(close_deadline, host.deadline);
    } else if (host.state == HostState::dropping) {
      dropping.push_back(host.name);
      drop_deadline = std::min(drop_deadline, host.deadline);
    } else if (host.state == HostState::ready) {
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
    case JobState::starting:
      if (!starting.empty()) {
        parts.push_back(named("the agent", starting) + " to be ready" + left(start_deadline));
      }
      if (!unstarted.empty()) {
        parts.push_back(ranks(unstarted) + " to be started" + left(worker_deadline));
      }
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
    parts.push_back(named("the agent", dropping) + " to be gone after SIGKILL" +
                    left(drop_deadline));
  }
  return join(parts, " and ");
}

}  // namespace hvd::driver
