// Tells a program that is wrong from slots and hosts that are: a failure that is the same
// everywhere is no host's fault, and starting its worker again elsewhere only burns hosts. Failures
// in one slot or on one host, however many, mean a broken slot or host, which is set aside
// (driver/job/slot_budget.h). So slots are counted, and never failures. Pure.
//
//   - Nobody has ever joined, and in each slot in which a worker was started one failed; on two
//     hosts, or on the only one that may be used, in three of its slots or in all if it has fewer.
//   - Nobody has ever joined, and more worlds than a slot has restarts failed in the same way, one
//     after the other; their first failures were in three slots and on three hosts, or in all that
//     may be used if these are fewer. Later failures in such a world do not count: the first one
//     ends its other workers, which then say nothing of the program, and may have caused theirs.
//   - Later, when too few are left for a world: in each slot in which a worker was started since
//     somebody joined last one failed, all in the same way; in three slots and on three hosts, or
//     on all that may be used if these are fewer.
//   - Workers that had joined failed in the same way within some seconds: in three or more slots,
//     three quarters of the world, and on two hosts if it had more than one; unless the job goes on
//     without any of its workers.
//
// A failure that comes from outside a program (SIGKILL, SIGTERM, SIGINT, SIGHUP, the loss of a
// host) says nothing of it; the owner does not tell of that by failed(), but by lost().
//
// A value for one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

class CommonCause {
 public:
  using Place = std::pair<std::string, int>;  // a host, and a slot of it

  // Failures within this time of each other count as one event.
  explicit CommonCause(int restarts, std::chrono::milliseconds together = std::chrono::seconds(5))
      : restarts_(static_cast<std::size_t>(restarts)), together_(together) {}

  void launched(Incarnation worker, const Place& place);
  // It has reached the point where it can work with others.
  void joined(Incarnation worker);
  // It ended in a way that says nothing of the program.
  void lost(Incarnation worker);
  // Workers that never join have worked: the program can run.
  void forget_fresh();

  struct Failed {
    Incarnation worker = 0;
    Place place;
    std::string how;               // what makes two failures the same: "exited with code 1"
    std::uint64_t generation = 0;  // of the world of which it was a member; 0: of none
  };
  struct Situation {
    std::size_t world_size = 0;   // of the world it was in or would have joined, before any failed
    std::size_t world_hosts = 0;  // of that world
    std::size_t hosts = 0;        // that may be used, or are on their way to it
    std::size_t slots = 0;        // of these hosts
    bool too_few = false;         // the world waits for replacements
    // Others go on from what the world has committed, and the owner counts how often in vain.
    bool outlives_world = false;
  };
  struct Verdict {
    std::string why;        // it is believed that the program is at fault
    Incarnation first = 0;  // of those that failed in that way
  };
  // It failed by itself.
  std::optional<Verdict> failed(const Failed& failure, const Situation& situation, TimePoint now);

 private:
  struct Recent {
    TimePoint at;
    Failed failure;
    Situation situation;
  };

  bool all_started_have_failed() const;
  std::optional<Verdict> judge_fresh(const Situation& situation) const;
  std::optional<Verdict> judge_worlds(const Situation& situation) const;
  std::optional<Verdict> judge_together() const;
  void note_world(const Failed& failure);

  std::size_t restarts_;
  std::chrono::milliseconds together_;
  std::map<Incarnation, Place> fresh_;  // on their way
  bool anybody_joined_ = false;
  std::deque<Recent> recent_;           // of those that had joined
  std::vector<Failed> fresh_failures_;  // since somebody joined: the first in each place
  std::vector<Failed> failed_worlds_;   // before anybody joined: the first failure of each
};

// True of a signal that comes from outside of a program.
bool comes_from_outside(int signal_number);

}  // namespace hvd::driver
