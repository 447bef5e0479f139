// The books of an elastic job; what is decided stands in elastic_hosts, elastic_workers,
// elastic_world and elastic_end.
#include "driver/job/elastic_job.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::driver {

ElasticJob::ElasticJob(ElasticOptions options)
    : options_(std::move(options)),
      heartbeats_({options_.job.heartbeat_timeout, options_.job.orphan_timeout}, {}),
      init_watch_(options_.job.init_timeout),
      budget_(options_.budget),
      random_state_(options_.jitter_seed) {
  effective_.job_id = options_.job.job_id;
}

std::size_t ElasticJob::index_of(Incarnation incarnation) const {
  const Incarnation index = incarnation - 1;  // huge if it is 0
  return index < workers_.size() ? static_cast<std::size_t>(index) : workers_.size();
}

std::vector<std::string> ElasticJob::host_names() const {
  std::vector<std::string> names;
  for (const auto& host : hosts_) names.push_back(host.name);
  return names;
}

std::vector<Action> ElasticJob::step(const Event& event, TimePoint now) {
  if (state_ == ElasticState::finished) return {};
  now_ = now;
  actions_.clear();
  std::visit([this](const auto& value) { on(value); }, event);
  settle();
  return std::exchange(actions_, {});
}

TimePoint ElasticJob::next_deadline() const {
  if (state_ == ElasticState::finished) return kNever;
  TimePoint next =
      std::min({state_deadline_, decide_at_, heartbeats_.next_look(), init_watch_.next_look()});
  for (const auto& host : hosts_) next = std::min(next, host.deadline);
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (!stop_has_begun()) next = std::min(next, next_rest_);
  return next;
}

void ElasticJob::move(ElasticState to) {
  check_move(state_, to);
  state_ = to;
}

void ElasticJob::move(HostIndex host, HostState to) {
  check_move(hosts_[host].state, to);
  hosts_[host].state = to;
  if (to == HostState::dropping || to == HostState::gone) heartbeats_.forget(host);
}

void ElasticJob::move(std::size_t worker, WorkerState to) {
  check_move(workers_[worker].state, to);
  workers_[worker].state = to;
  note_presence(worker);
}

void ElasticJob::move(std::size_t worker, Standing to) {
  check_move(workers_[worker].standing, to);
  workers_[worker].standing = to;
  note_presence(worker);
}

void ElasticJob::note_presence(std::size_t index) {
  const ElasticWorker& worker = workers_[index];
  if (worker.standing == Standing::member && worker.state == WorkerState::running) {
    absent_.insert(index);
  } else {
    absent_.erase(index);
  }
}

void ElasticJob::end(std::size_t index, WorkerState state) {
  ElasticWorker& worker = workers_[index];
  move(index, state);
  --hosts_[worker.host].live;
  live_.erase(index);
  set_deadline(index, kNever);
  common_cause_.lost(worker.member.incarnation);
}

void ElasticJob::set_deadline(std::size_t index, TimePoint deadline) {
  ElasticWorker& worker = workers_[index];
  if (worker.deadline == deadline) return;
  deadlines_.erase({worker.deadline, index});
  worker.deadline = deadline;
  if (deadline != kNever) deadlines_.insert({deadline, index});
}

void ElasticJob::decide_within(std::chrono::milliseconds time) {
  decide_at_ = std::min(decide_at_, now_ + time);
}

// Between 0 and 1, by splitmix64: all that is random here is the seed.
double ElasticJob::random() {
  random_state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = random_state_;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  z ^= z >> 31U;
  return static_cast<double>(z >> 11U) * 0x1.0p-53;
}

}  // namespace hvd::driver
