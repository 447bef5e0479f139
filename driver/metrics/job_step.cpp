#include "driver/metrics/job_step.h"

#include <algorithm>
#include <numeric>
#include <variant>

namespace hvd::driver {
namespace {

// An agent that only lives changes nothing.
bool says_only_that_it_lives(const Event& event) {
  return std::holds_alternative<event::Heard>(event) ||
         std::holds_alternative<event::Unserved>(event) ||
         std::holds_alternative<event::Quiet>(event);
}

template <typename Value>
void add_names(const Value& value, const Job& job, NamedByStep& named) {
  const auto add_worker = [&](Incarnation incarnation) {
    const std::size_t index = job.index_of(incarnation);
    if (index < job.workers().size()) named.workers.push_back(index);
  };
  if constexpr (requires { value.member.incarnation; }) add_worker(value.member.incarnation);
  bool names_a_worker = false;
  if constexpr (requires { value.incarnation; }) {
    names_a_worker = value.incarnation != kEveryWorker;
    if (names_a_worker) add_worker(value.incarnation);
  }

  if constexpr (requires { value.host; }) {
    if (value.host >= job.hosts().size()) return;
    named.hosts.push_back(value.host);
    const auto& all = job.hosts()[value.host].workers;
    constexpr bool kIsLaunch = requires { value.member; };
    if (!names_a_worker && !kIsLaunch) {
      named.workers.insert(named.workers.end(), all.begin(), all.end());
    }
  }
}

template <typename Index>
void keep_each_once(std::vector<Index>& indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
}

}  // namespace

NamedByStep named_by(const JobStep& step) {
  NamedByStep named;
  if (says_only_that_it_lives(step.event) && step.actions.empty()) return named;
  std::visit([&](const auto& value) { add_names(value, step.job, named); }, step.event);
  for (const auto& action : step.actions) {
    std::visit([&](const auto& value) { add_names(value, step.job, named); }, action);
  }
  keep_each_once(named.hosts);
  keep_each_once(named.workers);
  return named;
}

NamedByStep all_of(const Job& job) {
  NamedByStep all{std::vector<HostIndex>(job.hosts().size()),
                  std::vector<std::size_t>(job.workers().size())};
  std::iota(all.hosts.begin(), all.hosts.end(), HostIndex{0});
  std::iota(all.workers.begin(), all.workers.end(), std::size_t{0});
  return all;
}

}  // namespace hvd::driver
