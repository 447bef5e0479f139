// Faults of a simulated cluster.
#include <algorithm>
#include <utility>

#include "tests/worker/elastic/simulated_cluster.h"

namespace hvd {

using driver::HostIndex;
using driver::Incarnation;
using std::chrono::milliseconds;
namespace event = driver::event;

void SimulatedCluster::now_and_then(int mean, const std::function<void()>& work) {
  if (mean == 0) return;
  schedule(dice_.up_to(2 * mean), [this, mean, work] {
    if (calm_ || is_over()) return;
    work();
    now_and_then(mean, work);
  });
}

void SimulatedCluster::on_some_worker(const std::function<void(Incarnation)>& work) {
  const auto running = workers_.running();
  if (running.empty()) return;
  const Incarnation one =
      running[static_cast<std::size_t>(dice_.below(static_cast<int>(running.size())))];
  if (!sessions_[workers_.host_of(one)].gone) work(one);
}

void SimulatedCluster::on_some_session(const std::function<void(HostIndex)>& work) {
  if (sessions_.empty()) return;
  const auto host = static_cast<HostIndex>(dice_.below(static_cast<int>(sessions_.size())));
  if (!sessions_[host].gone) work(host);
}

void SimulatedCluster::plan_faults() {
  const auto kill = [this](Incarnation one) { workers_.die(one, 0, 9); };
  now_and_then(climate_.worker_killed, [this, kill] {
    on_some_worker(kill);
    if (dice_.one_in(4)) on_some_worker(kill);
  });
  now_and_then(climate_.all_killed, [this, kill] {
    if (workers_.is_work_done()) return;  // a job that ends starts no more workers
    for (const Incarnation one : workers_.running()) {
      if (!sessions_[workers_.host_of(one)].gone) kill(one);
    }
  });
  now_and_then(climate_.worker_fails, [this] {
    on_some_worker([this](Incarnation one) {
      // A program that never called hvd::init may end with 0.
      const int least = workers_.joined(one) ? 0 : 1;
      workers_.die(one, least + dice_.below(2), dice_.one_in(2) ? 11 : 0);
    });
  });
  now_and_then(climate_.worker_stopped, [this] {
    if (options_.heartbeat_timeout.count() == 0) return;  // no heartbeat would ever show it
    on_some_worker([this](Incarnation one) {
      workers_.stop(one);
      stop_worker(one, options_.heartbeat_timeout, 9);
    });
  });
  now_and_then(climate_.worker_leaves, [this] {
    on_some_worker([this](Incarnation one) {
      tell(workers_.host_of(one), event::LeaveRequested{workers_.host_of(one), one});
    });
  });
  now_and_then(climate_.worker_leaves_early, [this] {
    on_some_worker([this](Incarnation one) {
      if (!workers_.leave_early(one)) return;
      // At once, or when it is made to.
      stop_worker(one, dice_.one_in(2) ? dice_.up_to(20) : dice_.up_to(5'000), 0);
    });
  });
  now_and_then(climate_.host_leaves, [this] {
    on_some_session([this](HostIndex host) {
      event::HostLeaves leaves{host, dice_.one_in(2)};
      if (leaves.is_notice && !dice_.one_in(4)) leaves.left = milliseconds(dice_.up_to(10'000));
      tell(host, leaves);
    });
  });
  now_and_then(climate_.agent_dies, [this] {
    on_some_session([this](HostIndex host) {
      kill_all_on(host, milliseconds(5));
      tell(host, event::AgentGone{host, "died"});
    });
  });
  now_and_then(climate_.agent_lies, [this] {
    on_some_session([this](HostIndex host) {
      if (dice_.one_in(2)) {
        tell(host, event::Exited{host, 1'000'000, 0, 0, false});
      } else {
        tell(host, event::AgentBroken{host, "spoke rubbish"});
      }
    });
  });
  now_and_then(climate_.host_cut_off, [this] { cut_off_machine(); });
  now_and_then(climate_.discovery_changes, [this] { change_discovery(); });
  now_and_then(climate_.everybody_is_replaced, [this] { replace_everybody(); });
  now_and_then(climate_.driver_stalls, [this] { stall(); });
  now_and_then(climate_.driver_dies, [this] { lose_driver(); });
  now_and_then(climate_.host_drained, [this] { drain_or_undo(); });
  now_and_then(climate_.job_scaled, [this] { scale(); });
  now_and_then(climate_.worker_is_slow, [this] {
    on_some_worker([this](Incarnation one) {
      const HostIndex host = workers_.host_of(one);
      tell(host, event::FoundSlow{host, one, !dice_.one_in(4)});
    });
  });
}

// ---- the network, and the lease ----

// An agent freezes its workers before the driver gives it up.
void SimulatedCluster::cut_off_machine() {
  const auto index = static_cast<std::size_t>(dice_.below(static_cast<int>(machines_.size())));
  Machine& machine = machines_[index];
  const milliseconds time = dice_.one_in(2) ? dice_.up_to(100) : dice_.up_to(1'500);
  machine.cut_off_until = std::max(machine.cut_off_until, time_.now() + time);
  machine.cut_off_from_all = dice_.one_in(2);
  // Without a driver there is no lease.
  if (options_.heartbeat_timeout.count() != 0 && machine.lease_ends == kNever && !driver_is_dead_) {
    machine.lease_ends = time_.now() + options_.heartbeat_timeout * 2 / 3;
  }
  schedule(time, [this, index] { heal(index); });
}

void SimulatedCluster::heal(std::size_t index) {
  Machine& machine = machines_[index];
  if (machine.cut_off_until > time_.now() || held_up_until_ > time_.now()) return;
  if (!is_linked(index)) {
    // Its agent sees that there is no driver. What was frozen before stays so.
    if (machine.lease_ends > time_.now()) machine.lease_ends = kNever;
    return;
  }
  machine.lease_ends = kNever;
  for (HostIndex host = 0; host < sessions_.size(); ++host) {
    if (sessions_[host].machine != index || sessions_[host].gone) continue;
    const auto events = std::exchange(sessions_[host].outbox, {});
    for (const auto& event : events) tell(host, event);
    if (!sessions_[host].gone) workers_.thawed(host);
  }
}

// A driver that does nothing renews no lease.
void SimulatedCluster::stall() {
  if (driver_is_dead_) return;
  const milliseconds time = dice_.up_to(500);
  held_up_until_ = std::max(held_up_until_, time_.now() + time);
  if (options_.heartbeat_timeout.count() != 0) {
    for (auto& machine : machines_) {
      machine.lease_ends =
          std::min(machine.lease_ends, time_.now() + options_.heartbeat_timeout * 2 / 3);
    }
  }
  schedule(time, [this] {
    if (held_up_until_ > time_.now()) return;
    for (const auto& event : std::exchange(waiting_, {})) to_driver(event);
    for (std::size_t machine = 0; machine < machines_.size(); ++machine) heal(machine);
  });
}

// No agent there waits for a driver.
bool SimulatedCluster::is_linked(std::size_t machine) const {
  return std::all_of(sessions_.begin(), sessions_.end(), [&](const HostSession& session) {
    return session.machine != machine || session.gone || !session.ready ||
           (!driver_is_dead_ && session.linked);
  });
}

// ---- discovery ----

void SimulatedCluster::change_discovery() {
  const auto index = static_cast<std::size_t>(dice_.below(static_cast<int>(machines_.size())));
  Machine& machine = machines_[index];
  if (dice_.one_in(2)) {
    machine.slots = 1 + dice_.below(3);
    machine.open = false;  // the number that is said now is the one that counts
  } else {
    machine.found = !machine.found;
    // Two changes within a moment, and a host that comes back.
    if (dice_.one_in(2)) {
      schedule(dice_.up_to(200), [this, index] {
        machines_[index].found = true;
        find();
      });
    }
  }
  find();
}

// ---- people ----

// Also a host that is drained, or is not.
void SimulatedCluster::drain_or_undo() {
  const auto index = static_cast<std::size_t>(dice_.below(static_cast<int>(machines_.size())));
  const std::string name = dice_.one_in(20) ? "nobody" : machines_[index].name;
  to_driver(event::DrainRequested{name, dice_.one_in(2)});
}

// Also to a size that the job cannot have.
void SimulatedCluster::scale() {
  int slots = 2;
  for (const auto& machine : machines_) slots += machine.slots;
  to_driver(event::ScaleRequested{dice_.below(slots)});
}

// ---- all at once ----

// The machines that were found, and those that were not.
void SimulatedCluster::swap_machines() {
  for (auto& machine : machines_) machine.found = !machine.found;
  find();
}

void SimulatedCluster::replace_everybody() {
  const auto swap_in = [this](milliseconds time) {
    schedule(time, [this] {
      if (!calm_) swap_machines();
    });
  };
  const int way = dice_.below(options_.elastic.limits.least == 1 ? 5 : 3);
  if (way == 0) {
    // First an answer that names no host.
    to_driver(event::HostsFound{});
    swap_in(dice_.up_to(200));
  } else if (way < 3) {
    swap_machines();
    if (way == 1) swap_in(dice_.up_to(200));  // and back
  } else {
    // With a minimum that needs all slots there could be no replacements.
    const milliseconds within = dice_.one_in(2) ? milliseconds(1) : milliseconds(100);
    for (const Incarnation one : workers_.running()) {
      schedule(dice_.up_to(static_cast<int>(within.count())), [this, one] {
        if (!workers_.runs(one)) return;
        tell(workers_.host_of(one), event::LeaveRequested{workers_.host_of(one), one});
      });
    }
    if (way == 3) swap_in(dice_.up_to(100));
  }
  if (!dice_.one_in(climate_.killed_while_replaced)) return;
  schedule(dice_.up_to(200), [this] {
    if (!calm_) on_some_worker([this](Incarnation one) { workers_.die(one, 0, 9); });
  });
}

}  // namespace hvd
