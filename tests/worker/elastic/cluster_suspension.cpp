// A simulated job that is to be suspended: when, and how it must end.
#include <algorithm>
#include <csignal>
#include <utility>

#include "base/text.h"
#include "tests/worker/elastic/simulated_cluster.h"

namespace hvd {

using std::chrono::milliseconds;
namespace action = driver::action;
namespace event = driver::event;

namespace {

// Beside the time for the commit, and the time for workers to leave: to end what is left then.
constexpr milliseconds kEndsWithin{10'000};

}  // namespace

void SimulatedCluster::plan_suspension() {
  if (climate_.suspended_within == 0) return;
  const auto ask = [this] {
    asks_for_suspension_ = true;
    if (!is_over()) to_driver(event::SuspendRequested{SIGTERM});
  };
  const milliseconds first = dice_.up_to(climate_.suspended_within);
  schedule(first, ask);
  if (dice_.one_in(climate_.suspended_twice)) {
    schedule(first + dice_.up_to(dice_.one_in(2) ? 60 : 1'000), ask);
  }
}

// The driver that was asked has died, and nobody knows of it.
void SimulatedCluster::ask_for_suspension_again() {
  if (!asks_for_suspension_ || is_over() || rules_->is_to_suspend()) return;
  to_driver(event::SuspendRequested{SIGTERM});
}

// It does, whatever happens.
void SimulatedCluster::look_whether_it_ends() {
  if (std::exchange(watches_suspension_, true)) return;
  schedule(2 * milliseconds(climate_.leave_grace) + kEndsWithin, [this] {
    // Nobody may have kept the request of a driver that has died.
    if (is_over() || !rules_->is_to_suspend()) return;
    rules_->wrong(
        cat("it was to be suspended and does not end; waits for ", job_->waiting_for(time_.now())));
  });
}

// A job that is wrong on purpose.
void SimulatedCluster::spoil(std::vector<driver::Action>& actions) {
  if (flaw_ == Flaw::proposes_the_last_world_once) {
    std::erase_if(actions, [this](const driver::Action& one) {
      const auto* const publish = std::get_if<action::PublishWorld>(&one);
      const bool is_last =
          publish != nullptr && publish->world.last && publish->world.state == WorldState::proposed;
      return is_last && std::exchange(has_proposed_last_, true);
    });
  }
  if (flaw_ == Flaw::starts_workers_while_suspending) {
    if (rules_->is_to_suspend() && launched_) actions.emplace_back(*launched_);
    for (const auto& one : actions) {
      if (const auto* const launch = std::get_if<action::Launch>(&one)) launched_ = *launch;
    }
  }
}

std::string SimulatedCluster::verdict_on_suspension(const action::Finish& finish) const {
  if (finish.suspended != (finish.exit_code == driver::kSuspended)) {
    return cat("suspended or not, with exit code ", finish.exit_code);
  }
  if (finish.suspended) {
    return history_.is_saved() ? ""
                               : cat("suspended, and the file holds ", to_text(history_.saved()),
                                     ", where ", to_text(history_.newest()), " was committed");
  }
  if (finish.exit_code == 0) {
    const bool is_plain = climate_.workers.plain;
    return is_plain || workers_.is_work_done() ? "" : "it ends with 0, and the work is not done";
  }
  if (!finish.failure && finish.exit_code == 128 + SIGTERM) {
    // Before anybody has called hvd::init() there is no state to keep.
    const auto& members = job_->world().members;
    const bool has_state = std::any_of(members.begin(), members.end(), [&](const WorldMember& one) {
      return job_->workers()[job_->index_of(one.incarnation)].joined;
    });
    return rules_->may_be_stopped() || !has_state ? ""
                                                  : "it was stopped, and could have been suspended";
  }
  return verdict_on(finish);
}

}  // namespace hvd
