// An elastic job whose agents keep what their workers have committed (--keep-state-in-agents), and
// all members of whose world are lost, or all that had the state: the next world begins with what
// the agents have.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "driver/job/job.h"
#include "driver/job/plan.h"

namespace hvd::driver {
namespace {

// Worlds in a row that were lost before they had committed anything.
constexpr int kMostWorldsInVain = 3;

}  // namespace

// The newest commit that agents have of workers that have ended. Those that others have got since
// are counted again with their ends.
CommitId Job::newest_kept() const {
  CommitId newest;
  for (const JobWorker& one : workers_.all()) {
    if (has_ended(one.state) && hosts_.is_usable(one.host)) newest = std::max(newest, one.kept);
  }
  return newest;
}

// Whether a member may have had a state that no agent has now.
bool Job::has_lost_agents() const {
  const auto& members = worlds_.in_force().members;
  return std::any_of(members.begin(), members.end(), [this](const WorldMember& member) {
    return !hosts_.is_usable(workers_.of(member.incarnation).host);
  });
}

// Members are lost, and of those that are left none is known to have the state: the world had not
// got to the end of a step yet.
bool Job::lacks_state() const {
  if (!options_.elastic.keeps_state_in_agents || state_ == JobState::ending) return false;
  if (count_members().lost.empty()) return false;
  return std::none_of(workers_.live().begin(), workers_.live().end(), [this](std::size_t index) {
    return workers_[index].has_state && workers_[index].membership == MemberStatus::member;
  });
}

// The members are lost that had the state. False: nobody has it any more.
bool Job::goes_on_from_agents() {
  const bool may_go_on = options_.elastic.keeps_state_in_agents && state_ != JobState::ending &&
                         !is_to_suspend() && failures_.state_lost_with().empty();
  if (!may_go_on) return false;
  const CommitId newest = newest_kept();
  if (newest.none() && has_lost_agents()) return false;
  if (std::exchange(in_vain_.commit, newest) < newest) in_vain_.worlds = 0;
  const bool is_lost = nobody_is_left();
  if (is_lost && std::exchange(in_vain_.generation, worlds_.generation()) != worlds_.generation()) {
    if (in_vain_.worlds++ == kMostWorldsInVain) return false;
    notice(cat("no worker of the world is left: others go on from ",
               newest.none() ? std::string("the beginning, since nothing was committed")
                             : cat("commit ", to_text(newest), ", which agents have kept")));
  }

  const auto is_there = [&](MemberStatus as) {
    return std::any_of(workers_.live().begin(), workers_.live().end(), [&](std::size_t index) {
      const JobWorker& one = workers_[index];
      const bool has_state = one.state == WorkerState::launching || one.kept >= newest;
      return has_state && one.membership == as && !one.is_to_leave();
    });
  };
  const auto is_ready = [&] {
    return is_there(MemberStatus::standby) || is_there(MemberStatus::member);
  };
  const bool is_needed = !newest.none() && !is_ready() && !is_there(MemberStatus::joining);
  if (is_needed && !start_keeper(newest)) {
    wait_for_keeper(newest);  // until a slot has rested
    return true;
  }
  staff_slots();

  // The others that are on their way are waited for: the world begins with all of them.
  if (deadlines_.from_agents == kNever) deadlines_.from_agents = now_ + options_.start_timeout;
  if (!is_ready()) {
    wait_for_keeper(newest);
  } else if (count_members().joining > 0 && now_ < deadlines_.from_agents) {
    deadlines_.decision = std::min(deadlines_.decision, deadlines_.from_agents);
  } else {
    deadlines_.from_agents = kNever;
    reform_now();
  }
  return true;
}

void Job::wait_for_keeper(const CommitId& newest) {
  wait_for_workers(newest.none() ? std::string("no worker is left")
                                 : cat("commit ", to_text(newest), " is with agents alone"));
}

// Where the state lies a worker is started first. It takes the place of another if there are enough
// already, as those that were on standby.
bool Job::start_keeper(const CommitId& newest) {
  std::set<std::string> hosts;
  for (const JobWorker& one : workers_.all()) {
    const bool has_it = has_ended(one.state) && hosts_.is_usable(one.host) && one.kept == newest;
    if (has_it) hosts.insert(one.member.host);
  }
  std::vector<Room> rooms = roster_.rooms(now_);
  std::erase_if(rooms, [&](const Room& room) { return hosts.count(room.host) == 0; });
  for (Room& room : rooms) {
    std::erase_if(room.resting_slots, [&](int slot) {
      return roster_.budget().slot_rest_ends(room.host, slot) == kNever;
    });
  }
  const auto places = staff(rooms, occupants(), {}).launch;
  if (places.empty()) return false;
  launch(places.front(), *hosts_.current(places.front().host), false);
  workers_[workers_.size() - 1].kept = newest;  // until its agent says what it has got
  return true;
}

}  // namespace hvd::driver
