// The account of a job, for the person who reads its last line: how long it took, how its world
// changed, and for how long it recovered from losses. It is told each step of the job. Pure.
//
// A value for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "base/clock.h"
#include "driver/job/job.h"
#include "driver/job/job_summary.h"

namespace hvd::driver {

class JobAccount {
 public:
  // The actions with which the job answered an event, and the job after that.
  void step(const Event& event, const std::vector<Action>& actions, const Job& job, TimePoint now);
  JobSummary summary(const Job& job, TimePoint now) const;

 private:
  void note(const WorldDocument& world, TimePoint own);

  TimePoint begun_ = kNever;
  // In the job's own time, which stands still while hvdrun is held up.
  TimePoint own_begun_ = kNever;
  TimePoint first_world_ = kNever;
  TimePoint recovers_since_ = kNever;  // kNever: it does not
  Duration recovered_for_{};           // before that
  std::set<Incarnation> members_;      // of the world in force
  std::size_t worlds_ = 0;
  std::size_t joined_ = 0;
  std::uint64_t redone_ = 0;
};

}  // namespace hvd::driver
