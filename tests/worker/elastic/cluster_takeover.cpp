// The driver of a simulated cluster dies, and another one goes on with its job: as
// driver/run/job_takeover.cpp does it, with the steps of the past and class Takeover.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "tests/worker/elastic/simulated_cluster.h"

namespace hvd {

using driver::Event;
using driver::HostIndex;
using std::chrono::milliseconds;
namespace action = driver::action;
namespace event = driver::event;

namespace {

constexpr milliseconds kHold{10'000};
constexpr milliseconds kLooksAgain{20};

}  // namespace

void SimulatedCluster::record(const Event& event, const std::vector<driver::Action>& actions) {
  if (climate_.driver_dies + climate_.driver_dies_in_step == 0) return;
  steps_.push_back({event, time_.now(), actions.size()});
  if (!driver::has_effect(actions)) return;
  kept_ = steps_.size();
  kept_mark_ = workers_.mark();
}

// The messages of a dead driver arrive or not; none arrives once another one is there.
bool SimulatedCluster::arrives(HostIndex host, std::uint64_t driver) {
  if (driver == driver_ && !driver_is_dead_) return true;
  return driver == driver_ && !sessions_[host].linked && dice_.one_in(2);
}

void SimulatedCluster::lose_driver() {
  if (driver_is_dead_ || is_over()) return;
  driver_is_dead_ = true;
  held_up_until_ = {};
  waiting_.clear();
  steps_.resize(kept_ +
                static_cast<std::size_t>(dice_.below(static_cast<int>(steps_.size() - kept_) + 1)));
  history_.tell(cat(time_.passed().count(), " ms: driver ", driver_, " dies, with ", steps_.size(),
                    " steps in its journal"));
  for (HostIndex host = 0; host < sessions_.size(); ++host) {
    HostSession& session = sessions_[host];
    if (session.gone || !session.linked) continue;
    session.linked = false;
    session.outbox.clear();
    if (!session.ready) continue;
    Machine& machine = machine_of(host);
    if (!is_cut_off(host) && machine.lease_ends > time_.now()) machine.lease_ends = kNever;
    session.holds_until = reaches_driver(host) + kHold;
    time_.at(session.holds_until, [this, host] { end_if_held_too_long(host); });
    const Duration sees = reaches_driver(host) - time_.now();
    time_.after(sees, [this, host] {
      if (!sessions_[host].gone) workers_.lost_driver(host);
    });
  }
  milliseconds away = dice_.up_to(dice_.one_in(3) ? 1'500 : 60);
  if (dice_.one_in(climate_.driver_stays_away)) away = kHold + milliseconds(500);
  schedule(away, [this] { take_over(); });
}

void SimulatedCluster::end_if_held_too_long(HostIndex host) {
  HostSession& session = sessions_[host];
  if (session.holds_until > time_.now()) return;
  session.gone = true;
  kill_all_on(host, milliseconds(0));
}

void SimulatedCluster::take_over() {
  if (is_over()) return;
  ++driver_;
  driver_is_dead_ = false;
  relive();
  if (is_over()) return;
  if (steps_.empty()) {
    step(event::Begin{});
    return find();
  }
  const Duration without = time_.now() - steps_.back().at;
  step(event::TakenOver{driver_, without});
  if (driver_is_dead_) return;
  find();
  for (const HostIndex host : takeover_->hosts()) {
    if (driver_is_dead_) return;
    find_agent(host);
  }
  ask_for_suspension_again();
}

void SimulatedCluster::relive() {
  const driver::JobStart start{options_, {}};
  job_ = start.make();
  rules_ = std::make_unique<driver::ElasticRules>(*job_, options_);
  if (journal_) journal_.emplace(start);
  takeover_.emplace();
  CommitId mark;
  std::optional<std::uint64_t> to_void;
  for (const auto& [event, at, decided] : steps_) {
    rules_->before(event, at);
    const auto actions = job_->step(event, at);
    if (journal_) journal_->step(event, actions, *job_, at);
    if (actions.size() != decided) rules_->wrong("a decision of the past is another one now");
    for (const auto& action : actions) {
      rules_->answered(action);
      const auto* const voided = std::get_if<action::VoidCommits>(&action);
      if (voided == nullptr) continue;
      mark = {voided->generation, 0};
      if (voided->generation > voided_) to_void = voided->generation;
    }
    rules_->after(event, at, false);
    takeover_->relive(event, actions);
  }
  kept_ = steps_.size();
  if (to_void) perform(action::VoidCommits{*to_void});
  workers_.driver_came(std::max(mark, kept_mark_), job_->world());
  in_force_ = job_->world().generation;
  history_.tell(
      cat(time_.passed().count(), " ms: driver ", driver_, " goes on with generation ", in_force_));
}

void SimulatedCluster::find_agent(HostIndex host) {
  const bool is_given_up = job_->hosts()[host].state == driver::HostState::dropping;
  if (is_given_up && !takeover_->was_ready(host)) return perform(action::DropAgent{host});
  schedule_for_driver(options_.start_timeout, [this, host] {
    if (takeover_->looks_for(host)) perform(action::DropAgent{host});
  });
  const bool is_new = host >= sessions_.size() || !sessions_[host].assigned ||
                      (!sessions_[host].ready && !sessions_[host].gone);
  if (is_new) {
    perform(action::StartAgent{host});
    sessions_[host].linked = true;
    return;
  }
  schedule_for_driver(dice_.up_to(dice_.one_in(8) ? 1'500 : 60), [this, host] {
    if (!calm_ && dice_.one_in(climate_.host_fails)) {
      return to_driver(event::HostFailed{host, {driver::Step::connect, "refused", 1}});
    }
    look_for_agent(host);
  });
}

void SimulatedCluster::look_for_agent(HostIndex host) {
  if (!takeover_->looks_for(host)) return;
  if (is_cut_off(host) || held_up_until_ > time_.now()) {
    return schedule_for_driver(kLooksAgain, [this, host] { look_for_agent(host); });
  }
  if (!sessions_[host].gone) return agent_found(host);
  // Another agent answers there, and holds nothing.
  if (takeover_->was_ready(host)) {
    takeover_->ends_looking_for(host);
    return to_driver(event::AgentGone{host, "had ended, with its workers"});
  }
  sessions_[host] = {};
  perform(action::StartAgent{host});
}

void SimulatedCluster::agent_found(HostIndex host) {
  HostSession& session = sessions_[host];
  takeover_->ends_looking_for(host);
  session.linked = true;
  session.holds_until = kNever;
  const auto driver = driver_;
  Machine& machine = machine_of(host);
  if (options_.heartbeat_timeout.count() != 0) machine.lease_ends = kNever;
  const auto goes_on = [&] { return driver_ == driver && !driver_is_dead_ && !session.gone; };
  if (takeover_->was_ready(host)) {
    std::optional<WorldDocument> proposed = takeover_->proposed();
    if (proposed && proposed->generation <= job_->world().generation) proposed.reset();
    workers_.found_driver(host, job_->world(), proposed);
    repeats_ = true;
    for (const auto& action : takeover_->unanswered(host)) {
      std::visit([this](const auto& asked) { perform(asked); }, action);
    }
    repeats_ = false;
    to_driver(event::Heard{host});
  } else {
    to_driver(event::AgentReady{host, {0, machine.slots}});
  }
  // All that it has said comes again.
  const auto reports = session.reports;
  for (const auto& report : reports) {
    if (!goes_on()) return;
    to_driver(report);
  }
  // Workers say again and again what they do, as long as they run.
  const auto& members = job_->world().members;
  const bool all_run = std::all_of(members.begin(), members.end(), [this](const auto& member) {
    return workers_.runs(member.incarnation);
  });
  const auto is_known = [this](const Recorded& step) {
    const auto* const entered = std::get_if<event::WorldEntered>(&step.event);
    return entered != nullptr && entered->generation == entered_->generation;
  };
  if (goes_on() && all_run && entered_ && std::none_of(steps_.begin(), steps_.end(), is_known)) {
    to_driver(*entered_);
  }
  if (goes_on()) workers_.thawed(host);
}

std::optional<Event> SimulatedCluster::after_takeover(const Event& event) {
  if (!takeover_) return event;
  const auto* const failed = std::get_if<event::HostFailed>(&event);
  if (failed != nullptr && takeover_->looks_for(failed->host)) sessions_[failed->host].gone = true;
  return takeover_->told(event);
}

// Their silence is that of the driver before.
void SimulatedCluster::say_which_are_looked_for() {
  if (!takeover_) return;
  for (const HostIndex host : takeover_->hosts()) step(event::Unserved{host});
}

}  // namespace hvd
