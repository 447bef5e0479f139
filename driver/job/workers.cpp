#include "driver/job/workers.h"

#include <algorithm>

namespace hvd::driver {

std::size_t Workers::index_of(Incarnation incarnation) const {
  const Incarnation index = incarnation - 1;  // huge if it is 0
  return index < all_.size() ? static_cast<std::size_t>(index) : all_.size();
}

std::size_t Workers::add(JobWorker worker) {
  const std::size_t index = all_.size();
  worker.member.incarnation = index + 1;
  all_.push_back(std::move(worker));
  live_.insert(index);
  ++unstarted_;
  return index;
}

void Workers::move(std::size_t index, WorkerState to) {
  JobWorker& worker = all_[index];
  check_move(worker.state, to);
  if (is_unstarted(worker.state) && !is_unstarted(to)) --unstarted_;
  worker.state = to;
  note_presence(index);

  if (!has_ended(to)) return;
  live_.erase(index);
  set_deadline(index, kNever);
}

void Workers::move(std::size_t index, MemberStatus to) {
  check_move(all_[index].membership, to);
  all_[index].membership = to;
  note_presence(index);
}

void Workers::note_presence(std::size_t index) {
  const JobWorker& worker = all_[index];
  if (worker.membership == MemberStatus::member && worker.state == WorkerState::running) {
    absent_.insert(index);
  } else {
    absent_.erase(index);
  }
}

void Workers::set_deadline(std::size_t index, TimePoint deadline) {
  JobWorker& worker = all_[index];
  if (worker.deadline == deadline) return;
  deadlines_.erase({worker.deadline, index});
  worker.deadline = deadline;
  if (deadline != kNever) deadlines_.insert({deadline, index});
}

void Workers::renew_deadline(std::size_t index) {
  set_deadline(index, std::min(all_[index].launch_by, all_[index].leave_by));
}

TimePoint Workers::next_deadline() const {
  return deadlines_.empty() ? kNever : deadlines_.begin()->first;
}

void Workers::extend_deadlines(Duration time) {
  for (std::size_t index = 0; index < all_.size(); ++index) {
    JobWorker& worker = all_[index];
    for (TimePoint* const until : {&worker.left_at, &worker.launch_by, &worker.leave_by}) {
      if (*until != kNever) *until += time;
    }
    if (worker.deadline != kNever) set_deadline(index, worker.deadline + time);
  }
}

std::optional<std::size_t> Workers::take_overdue(TimePoint now) {
  if (next_deadline() > now) return std::nullopt;
  const std::size_t index = deadlines_.begin()->second;
  set_deadline(index, kNever);
  return index;
}

}  // namespace hvd::driver
