// The end of a run: nothing goes wrong any more, and the world becomes whole.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tests/worker/elastic/simulated_cluster.h"

namespace hvd {

using driver::JobState;
using std::chrono::milliseconds;
namespace event = driver::event;

namespace {

constexpr milliseconds kCalmFor{25'000};  // more than any rest, any start and any silence
constexpr milliseconds kLook{50};

}  // namespace

void SimulatedCluster::settle_down() {
  if (driver_is_dead_) return schedule(kLook, [this] { settle_down(); });
  calm_ = true;
  workers_.calm();
  commits_before_calm_ = history_.commits();
  whole_by_ = time_.now() + kCalmFor;
  for (auto& machine : machines_) machine.found = true;
  find();
  // Also of a host whose drain waits for a driver that is held up.
  for (const auto& machine : machines_) to_driver(event::DrainRequested{machine.name, true});
  look_whether_whole();
}

void SimulatedCluster::look_whether_whole() {
  const JobState state = job_->state();
  if (is_over() || state >= JobState::ending || rules_->is_to_suspend()) return;
  if (is_whole()) {
    if (climate_.workers.plain && !std::exchange(asks_for_all_, true)) return ask_for_all();
    finish_work();
  } else if (time_.now() > whole_by_) {
    for (const auto& member : job_->world().members) {
      history_.tell(workers_.text(member.incarnation));
    }
    rules_->wrong(cat("the world is not whole again: it has ", job_->world().members.size(),
                      " workers; waits for ", job_->waiting_for(time_.now())));
  } else {
    schedule(kLook, [this] { look_whether_whole(); });
  }
}

void SimulatedCluster::ask_for_all() {
  int size = options_.elastic.limits.most;
  for (const auto& machine : machines_) {
    if (options_.elastic.limits.most == 0) size += machine.slots;
  }
  to_driver(event::ScaleRequested{size});
  schedule(kLook, [this] { look_whether_whole(); });
}

// The size of the world if all slots are used but `left_out`.
int SimulatedCluster::whole_size(int left_out) const {
  int slots = -left_out;
  for (const auto& machine : machines_) slots += good_slots(machine);
  driver::Limits limits = options_.elastic.limits;
  if (const int size = rules_->scaled_to(); size != 0) limits.most = size;
  if (limits.most != 0) slots = std::min(slots, limits.most + limits.spares);
  return driver::world_size(slots, limits);
}

// The group that began last is there. Slots that failed too often may be left out.
bool SimulatedCluster::is_whole_group() const {
  int left_out = 0;
  for (const auto& machine : machines_) {
    for (int slot = 0; slot < machine.slots; ++slot) {
      if (rules_->may_be_set_aside(cat(machine.name, "#", slot))) ++left_out;
    }
  }
  const int least = std::max(options_.elastic.limits.least, whole_size(left_out));
  const WorldDocument& world = job_->world();
  return job_->state() == JobState::running && static_cast<int>(world.members.size()) >= least &&
         std::all_of(world.members.begin(), world.members.end(), [&](const WorldMember& member) {
           return workers_.began_with(member.incarnation, world.generation);
         });
}

bool SimulatedCluster::is_whole() const {
  if (climate_.workers.plain) return is_whole_group();
  const WorldDocument& world = job_->world();
  return job_->state() == JobState::running &&
         static_cast<int>(world.members.size()) >= whole_size(0) &&
         history_.commits() > commits_before_calm_ &&
         std::all_of(world.members.begin(), world.members.end(), [&](const WorldMember& member) {
           return workers_.trains_in(member.incarnation, world.generation);
         });
}

void SimulatedCluster::finish_work() {
  finishing_ = true;
  workers_.finish();
  if (!dice_.one_in(climate_.killed_at_the_end)) return;
  for (const auto& member : job_->world().members) {
    if (!dice_.one_in(3) || member.rank == 0) continue;
    schedule(dice_.up_to(200), [this, incarnation = member.incarnation] {
      if (workers_.runs(incarnation)) workers_.die(incarnation, 0, 9);
    });
  }
}

}  // namespace hvd
