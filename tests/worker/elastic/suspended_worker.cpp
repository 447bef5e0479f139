// The last commit of a simulated job that is suspended: rank 0 saves the state, all are told, and
// all leave when all know it.
#include <algorithm>
#include <utility>

#include "tests/worker/elastic/simulated_workers.h"

namespace hvd {

namespace event = driver::event;

namespace {

constexpr int kSaveTime = 30'000;  // microseconds

}  // namespace

void SimulatedWorkers::suspend(Process& process) {
  if (flaw_ == Flaw::leaves_before_the_state_is_saved) {
    if (process.rank == 0) {
      deliver(process.incarnation, some(kSaveTime),
              [this](Process& one) { history_.saved(one.states.newest()); });
    }
    leave_at_last_commit(process);
    return;
  }

  if (process.rank == 0) {
    process.phase = Phase::saving;
    then(process, some(kSaveTime), &SimulatedWorkers::save);
    return;
  }
  process.phase = Phase::awaiting_save;
  if (process.is_saved) told_of_save(process, *process.is_saved);
}

// The file is there whole or not at all.
void SimulatedWorkers::save(Process& process) {
  const bool is_saved = !dice_.one_in(climate_.save_fails);
  tell(process, is_saved ? "has saved the state" : "cannot save the state");
  if (is_saved) history_.saved(process.states.newest());
  if (process.broken) {
    lost_a_peer(process);
    return;
  }

  for (const Incarnation member : groups_[process.group].members) {
    if (member == process.incarnation) continue;
    if (!message(process)) return;
    const TimePoint there = std::max(surroundings_.reaches_others(process.host),
                                     surroundings_.reaches_others(of(member).host));
    deliver(member, there - time_.now() + wire_time(),
            [this, generation = process.group, is_saved](Process& one) {
              if (one.group != generation || !message(one)) return;
              one.is_saved = is_saved;
              if (one.phase == Phase::awaiting_save) told_of_save(one, is_saved);
            });
  }
  if (message(process)) told_of_save(process, is_saved);
}

// Its program gets an error if it could not be saved, and ends with it.
void SimulatedWorkers::told_of_save(Process& process, bool is_saved) {
  if (!is_saved) {
    die(process.incarnation, 1, 0);
    return;
  }
  meet_to_leave(process);
}

// All know it: none of them is needed by another any more. A failure here changes nothing.
void SimulatedWorkers::meet_to_leave(Process& process) {
  say_in_collective(process, Phase::suspending, {});
}

void SimulatedWorkers::leave_at_last_commit(Process& process) {
  const std::uint64_t generation = process.last->generation;
  tell(process, "leaves at the last commit");
  process.follower->committed(*process.last);
  surroundings_.tell(process.host, event::Committed{process.host, process.incarnation, generation});
  if (!process.runs) return;
  leave_group(process);
  go_on(process);
}

}  // namespace hvd
