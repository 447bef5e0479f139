// The end of an elastic job that is to be taken up again later: all leave at the same commit.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/machine/child_process.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {

void Job::on(const event::SuspendRequested& event) {
  // Only a world in which somebody has called hvd::init() comes to a commit.
  const bool can_commit = policy_.changes_world && joined_.a_member &&
                          (state_ == JobState::running || state_ == JobState::waiting);
  const Suspension::Answer answer = suspension_.ask(can_commit);
  if (answer == Suspension::Answer::nothing) return;  // all were told to go before
  if (answer == Suspension::Answer::stop) return on(event::StopRequested{event.signal_number});
  notice(cat(signal_text(event.signal_number), ": the job ends at its next commit, within ",
             seconds_text(options_.elastic.leave_grace),
             " (--leave-grace); a second signal stops it at once"));
  suspend(event.signal_number);
}

void Job::suspend(int signal_number) {
  suspension_.begin(signal_number);
  await_last_commit();
  // Workers that have no state yet are not needed any more.
  for (const std::size_t index : std::set<std::size_t>(workers_.live())) {
    const MemberStatus membership = workers_[index].membership;
    const bool is_new = membership == MemberStatus::joining || membership == MemberStatus::standby;
    if (is_new && !worlds_.is_proposed(workers_[index].member.incarnation)) {
      let_go(index, "the job is being suspended");
    }
  }
  decide_within(kAtOnce);
}

// A worker that writes the state after it says so, for which the margin is. The last host that is
// taken away takes the state with it.
void Job::await_last_commit() {
  const TimePoint until = std::min(now_ + options_.elastic.leave_grace, last_host_gone_at());
  suspension_.await_commit(until + options_.stop_margin);
}

// The time at which all hosts with members will be gone, as notices have said; kNever: they have
// not.
TimePoint Job::last_host_gone_at() const {
  std::optional<TimePoint> last;
  for (const auto& member : worlds_.in_force().members) {
    const JobWorker& one = workers_.of(member.incarnation);
    if (one.is_live_member()) last = std::max(last.value_or(now_), hosts_[one.host].gone_at);
  }
  return last.value_or(kNever);
}

void Job::on(const event::Saving& event) {
  const JobWorker* const worker = worker_of(event.host, event.incarnation, "saving");
  if (worker == nullptr) return;
  const bool may_wait = !stop_has_begun() && !has_ended(worker->state);
  if (suspension_.on_saving(event, may_wait, now_)) {
    notice(cat("all have committed, and ", worker->member.ranked(), " writes the state, ",
               bytes_text(event.total), ": the job ends when it is on the disk"));
  }
}

WorldDocument Job::plan_last_world(WorldState state) {
  std::vector<Incarnation> ended;
  for (const auto& member : worlds_.in_force().members) {
    if (has_ended(workers_.of(member.incarnation).state)) ended.push_back(member.incarnation);
  }
  WorldDocument world = worlds_.plan_next(state, ended, {});
  world.last = true;
  return world;
}

// All members are told by it that no world follows.
void Job::propose_last_world() {
  const auto& proposed = worlds_.proposed();
  if (!proposed.empty() && proposed.rbegin()->second.last) return;
  const auto& members = worlds_.in_force().members;
  const bool anybody_is_left = std::any_of(
      members.begin(), members.end(),
      [&](const WorldMember& one) { return !has_ended(workers_.of(one.incarnation).state); });
  if (!anybody_is_left) return;

  // The one that wrote the state may be gone.
  if (suspension_.is_saving()) await_last_commit();
  WorldDocument world = plan_last_world(WorldState::proposed);
  actions_.emplace_back(action::PublishWorld{world, {}});
  worlds_.propose(std::move(world));
}

// Every member has left at that commit, or is about to. One that has lost the others before it knew
// hears of it now.
void Job::suspended(WorldDocument last) {
  last.state = WorldState::effective;
  actions_.emplace_back(action::PublishWorld{std::move(last), {}});
  suspension_.finish();
  begin_to_end("the state is kept at this commit: the job ends, to be taken up later");
  for (const auto& member : worlds_.in_force().members) {
    const std::size_t index = member.incarnation - 1;
    const JobWorker& one = workers_[index];
    if (one.is_live_member()) expect_exit(index);
  }
}

// A loss had withdrawn the last world when a member had committed to it already: the state is kept.
// Workers that are in a newer world since are told that none follows.
void Job::suspended_before_a_loss() {
  if (suspension_.is_finished()) return;
  suspended(plan_last_world(WorldState::effective));
}

void Job::on_suspension_deadline() {
  if (suspension_.deadline() > now_) return;
  suspension_.stop_waiting();
  // Meanwhile the work may have been done.
  if (stop_has_begun() || state_ == JobState::ending) return;
  if (suspension_.is_saving()) {
    warn(cat("the state cannot be kept: ", suspension_.saving_text(),
             " were written, and nothing more for ", seconds_text(Suspension::kSaveTimeout)));
  } else {
    const bool all_are_gone = last_host_gone_at() <= now_;
    warn(cat("the job came to no commit ", all_are_gone
                                               ? std::string("before its hosts were taken away")
                                               : leave_time_text("within", kNever)));
  }
  on(event::StopRequested{suspension_.signal()});
}

}  // namespace hvd::driver
