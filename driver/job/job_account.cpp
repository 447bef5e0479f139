#include "driver/job/job_account.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "driver/job/job.h"

namespace hvd::driver {
namespace {

template <typename... Kinds>
bool is_one_of(const Event& event) {
  return (std::holds_alternative<Kinds>(event) || ...);
}

// The others come too often for a look at all members.
bool may_be_a_loss(const Event& event, const std::vector<Action>& actions) {
  if (std::holds_alternative<event::Tick>(event)) return !actions.empty();
  return is_one_of<event::Exited, event::LaunchFailed, event::AgentGone, event::AgentBroken,
                   event::HostFailed, event::WorkerLeft>(event);
}

}  // namespace

void JobAccount::step(const Event& event, const std::vector<Action>& actions, const Job& job,
                      TimePoint now) {
  const TimePoint own = job.own_time(now);
  if (begun_ == kNever) {
    begun_ = now;
    own_begun_ = own;
  }
  for (const auto& action : actions) {
    const auto* const publish = std::get_if<action::PublishWorld>(&action);
    if (publish != nullptr && publish->world.state == WorldState::effective &&
        !publish->world.last) {
      note(publish->world, own);
    }
  }

  const auto* const entered = std::get_if<event::WorldEntered>(&event);
  if (entered != nullptr && entered->generation == job.world().generation) {
    redone_ += entered->redone;
  }

  const bool recovers = recovers_since_ != kNever;
  if (recovers ? actions.empty() : !may_be_a_loss(event, actions)) return;
  if (job.is_recovering() == recovers) return;
  if (recovers) recovered_for_ += own - recovers_since_;
  recovers_since_ = recovers ? kNever : own;
}

void JobAccount::note(const WorldDocument& world, TimePoint own) {
  std::set<Incarnation> members;
  for (const auto& member : world.members) {
    members.insert(member.incarnation);
    if (worlds_ > 0 && !members_.contains(member.incarnation)) ++joined_;
  }
  if (++worlds_ == 1) first_world_ = own;
  members_ = std::move(members);
}

JobSummary JobAccount::summary(const Job& job, TimePoint now) const {
  JobSummary summary;
  summary.time = begun_ == kNever ? Duration::zero() : now - begun_;
  summary.worlds = worlds_;
  summary.size = members_.size();
  summary.joined = joined_;
  summary.redone = redone_;
  summary.lost = static_cast<std::size_t>(
      std::count_if(job.workers().begin(), job.workers().end(),
                    [](const JobWorker& one) { return !one.how.empty(); }));
  const TimePoint own = job.own_time(now);
  if (begun_ != kNever) summary.held_up = summary.time - (own - own_begun_);
  if (worlds_ == 0) return summary;

  const Duration all = own - first_world_;
  Duration recovery = recovered_for_;
  if (recovers_since_ != kNever) recovery += own - recovers_since_;
  using Seconds = std::chrono::duration<double>;
  summary.outside_recovery =
      all > Duration::zero() ? 1 - Seconds(recovery).count() / Seconds(all).count() : 1;
  return summary;
}

}  // namespace hvd::driver
