// Slow members of the world, for which the others wait, and those that take their place
// (--replace-stragglers). A replacement is started first. When it is on standby the slow member
// leaves at the next commit, whenever that is: so the world never gets smaller because of it, and
// nobody goes back to an older commit.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {

constexpr const char* kWasSlow = "was slow: the other ranks waited for it";

void Job::on(const event::FoundSlow& event) {
  const std::size_t index = index_of(event.incarnation);
  if (index == workers_.size() || has_ended(workers_[index].state)) return;
  JobWorker& worker = workers_[index];
  if (!event.is_slow) {
    worker.pace = Pace::keeps_up;
  } else if (worker.pace == Pace::keeps_up) {
    worker.pace = Pace::slow;
  }
  if (!options_.elastic.replaces_slow) return;
  decide_within(kAtOnce);
  if (!event.is_slow || !may_replace_slow() || worker.membership != MemberStatus::member) return;

  find_places_for_slow();
  if (worker.pace == Pace::gives_way || worker.is_to_leave()) return;
  notice(cat(worker.member.worker(),
             " is slow and stays until there is a spare worker or a free slot on another host "
             "(--replace-stragglers)"));
}

bool Job::may_replace_slow() const {
  return options_.elastic.replaces_slow && state_ == JobState::running && !is_to_suspend() &&
         roster_.is_known();
}

std::size_t Job::giving_way() const {
  const auto& members = worlds_.in_force().members;
  return static_cast<std::size_t>(
      std::count_if(members.begin(), members.end(), [this](const WorldMember& member) {
        const JobWorker& one = workers_.of(member.incarnation);
        return one.pace == Pace::gives_way && one.is_live_member();
      }));
}

void Job::find_places_for_slow() {
  if (!may_replace_slow()) return;
  for (const auto& member : worlds_.in_force().members) {
    JobWorker& one = workers_.of(member.incarnation);
    if (!one.is_live_member() || one.pace != Pace::slow || one.is_to_leave()) continue;
    if (!has_place_for_another(one)) continue;

    one.pace = Pace::gives_way;
    // Nobody is to be started where it was slow.
    const TimePoint until = roster_.budget().set_aside(member.host, member.slot, now_, random());
    roster_.note_slot_error(member.host, member.slot, kWasSlow);
    notice(cat(member.worker(),
               " is slow and is replaced (--replace-stragglers); its slot is set aside for ",
               seconds_text(until - now_)));
  }
}

bool Job::has_place_for_another(const JobWorker& worker) const {
  // Its own host is as busy for another one.
  std::vector<Room> elsewhere = roster_.rooms(now_);
  for (Room& room : elsewhere) {
    if (room.host == worker.member.host) room.rests = true;
  }
  std::vector<Occupant> all = occupants();
  const std::size_t to_start = staff(elsewhere, all, limits_now()).launch.size();
  for (Occupant& one : all) {
    if (one.incarnation == worker.member.incarnation) one.leaves = true;
  }
  if (staff(elsewhere, all, limits_now()).launch.size() > to_start) return true;

  std::size_t spares = 0;
  for (const std::size_t index : workers_.live()) {
    const JobWorker& one = workers_[index];
    const bool is_free = one.membership == MemberStatus::standby && !one.is_to_leave();
    if (is_free && one.host != worker.host) ++spares;
  }
  return spares > giving_way();
}

void Job::release_slow(std::set<Incarnation>& released) {
  if (!may_replace_slow()) return;
  std::size_t ready = count_members().standby;
  for (const auto& member : worlds_.in_force().members) {
    const JobWorker& one = workers_.of(member.incarnation);
    const bool gives_way = one.is_live_member() && one.pace == Pace::gives_way;
    if (!gives_way || released.contains(member.incarnation)) continue;
    if (ready == 0) return;
    --ready;
    released.insert(member.incarnation);
    if (one.is_to_leave()) continue;

    const std::size_t index = member.incarnation - 1;
    ask_to_leave(index, "the other ranks wait for it", false);
    // Without a commit it stays.
    workers_[index].leave_by = kNever;
    workers_.renew_deadline(index);
  }
}

}  // namespace hvd::driver
