// The end of the work of a simulated job: all come to it together, and each goes on by itself for a
// while before it says that it is done.
#include <chrono>
#include <utility>

#include "tests/worker/elastic/simulated_workers.h"

namespace hvd {

using std::chrono::milliseconds;
namespace event = driver::event;

namespace {

constexpr milliseconds kExitTime{20};
constexpr int kEvaluationTime = 100'000;  // microseconds

}  // namespace

// All say that they have come to the end, and it is marked before the first one acts on it.
void SimulatedWorkers::finish(Process& process) {
  say_in_collective(process, Phase::finishing, {});
}

void SimulatedWorkers::mark_end(Process& process) {
  if (process.rank != 0) {
    say_in_collective(process, Phase::shutting_down, {});
    return;
  }
  process.phase = Phase::marking_end;
  process.mark.emplace(CommitId{process.group, 0, 1}, process.mark_version);
  write_mark(process);
}

void SimulatedWorkers::end_well(Process& process) {
  tell(process, "has finished");
  process.finished = std::exchange(process.group, 0);
  is_work_done_ = true;
  process.phase = Phase::evaluating;
  ++process.turn;
  then(process, some(kEvaluationTime), &SimulatedWorkers::say_done);
}

void SimulatedWorkers::say_done(Process& process) {
  if (!message(process)) return;
  tell(process, "is done");
  process.phase = Phase::done;
  process.leaving = true;
  surroundings_.tell(process.host, event::Done{process.host, process.incarnation});
  exit_well(process);
}

// The work had been done before this world began.
void SimulatedWorkers::come_too_late(Process& process) {
  const bool has_end = climate_.copies && whole_state(process) != TrainingHistory::kNothing;
  if (process.live != TrainingHistory::kNothing || has_end) return end_well(process);
  tell(process, "comes too late");
  process.phase = Phase::done;
  process.leaving = true;
  process.group = 0;
  ++process.turn;
  surroundings_.tell(process.host,
                     event::WorkerLeft{process.host, process.incarnation, "it came too late"});
  exit_well(process);
}

void SimulatedWorkers::exit_well(Process& process) {
  deliver(process.incarnation, dice_.up_to(static_cast<int>(kExitTime.count())),
          [this](Process& one) { die(one.incarnation, 0, 0, true); });
}

}  // namespace hvd
