#include "driver/job/job.h"

#include <algorithm>
#include <utility>

namespace hvd::driver {
namespace {

std::vector<std::string> hosts_of(const std::vector<WorldMember>& members) {
  std::vector<std::string> hosts;
  for (const auto& member : members) {
    if (hosts.empty() || hosts.back() != member.host) hosts.push_back(member.host);
  }
  return hosts;
}

}  // namespace

Job::Job(JobOptions options, JobPolicy policy)
    : options_(std::move(options)),
      policy_(policy),
      hosts_({options_.heartbeat_timeout, options_.orphan_timeout}),
      worlds_(options_.job_id),
      time_(options_.pace),
      roster_(hosts_, options_.elastic.budget),
      init_watch_(options_.init_timeout),
      common_cause_(options_.elastic.budget.restarts),
      random_state_(options_.elastic.jitter_seed) {}

Job::Job(JobOptions options) : Job(std::move(options), JobPolicy::elastic()) {}

Job::Job(JobOptions options, std::vector<WorldMember> members)
    : Job(std::move(options), JobPolicy::fixed()) {
  list_hosts(hosts_of(members));
  seat(std::move(members));
}

Job::Job(JobOptions options, PlanRequest request) : Job(std::move(options), JobPolicy::fixed()) {
  std::vector<std::string> names;
  for (const auto& host : request.hosts) names.push_back(host.name);
  list_hosts(names);
  list_.request = std::move(request);
}

std::unique_ptr<Job> JobStart::make() const {
  if (const auto* const members = std::get_if<std::vector<WorldMember>>(&workers)) {
    return std::make_unique<Job>(options, *members);
  }
  if (const auto* const request = std::get_if<PlanRequest>(&workers)) {
    return std::make_unique<Job>(options, *request);
  }
  return std::make_unique<Job>(options);
}

std::vector<Action> Job::step(const Event& event, TimePoint now) {
  if (state_ == JobState::finished) return {};
  actions_.clear();
  if (const auto* const resumed = std::get_if<event::Resumed>(&event)) {
    time_.stopped(resumed->stopped, now);
  }
  if (const auto* const taken = std::get_if<event::TakenOver>(&event)) {
    time_.stopped(taken->without_driver, now);
  }
  if (std::holds_alternative<event::Quiet>(event)) time_.pass(now);
  const auto held_up = time_.look(now);
  clock_ = now;
  now_ = time_.own(now);
  const bool routine = is_routine(event);
  const std::pair before{state_, init_watch_.is_waiting()};
  if (held_up) on_hold_up(*held_up);
  std::visit([this](const auto& value) { on(value); }, event);
  settle();
  was_routine_ = routine && actions_.empty() && !hosts_.heartbeats().delaying() &&
                 before == std::pair{state_, init_watch_.is_waiting()};
  return std::exchange(actions_, {});
}

// Nothing is due that would change more than the event itself does.
bool Job::is_routine(const Event& event) const {
  const bool is_tick = std::holds_alternative<event::Tick>(event);
  const bool is_word =
      std::holds_alternative<event::Heard>(event) || std::holds_alternative<event::Unserved>(event);
  if ((!is_tick && !is_word) || hosts_.heartbeats().delaying()) return false;
  if (std::min(deadlines_.decision, deadlines_.rest) <= now_) return false;
  return is_word || next_limit() > now_;
}

TimePoint Job::next_limit() const {
  TimePoint next = std::min(deadlines_.decision, hosts_.next_deadline());
  if (!hosts_.are_any_sought()) {
    next = std::min({next, deadlines_.state, deadlines_.entry, suspension_.deadline(),
                     init_watch_.next_look(), workers_.next_deadline()});
  }
  return stop_has_begun() ? next : std::min(next, deadlines_.rest);
}

TimePoint Job::next_deadline() const {
  if (state_ == JobState::finished) return kNever;
  const TimePoint own = std::min(next_limit(), hosts_.heartbeats().next_look());
  return std::min(time_.on_clock(own), time_.next_look());
}

Incarnation Job::first_cause() const {
  if (outcome_.failure) return outcome_.failure->incarnation;
  return failures_.cause() ? failures_.cause()->incarnation : 0;
}

void Job::move(JobState to) {
  check_move(state_, to);
  state_ = to;
}

void Job::end(std::size_t index, WorkerState state) {
  const JobWorker& worker = workers_[index];
  const bool was_unstarted = is_unstarted(worker.state);
  workers_.move(index, state);
  --hosts_[worker.host].live;
  common_cause_.lost(worker.member.incarnation);
  if (was_unstarted) worker_is_started(worker.host);
}

// Between 0 and 1, by splitmix64: all that is random here is the seed.
double Job::random() {
  random_state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = random_state_;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  z ^= z >> 31U;
  return static_cast<double>(z >> 11U) * 0x1.0p-53;
}

}  // namespace hvd::driver
