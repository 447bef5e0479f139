// The account of a job, for the person who reads its last line: how long it took, how its world
// changed, and for how long it recovered from losses. It is told each step of the job. Pure.
//
// A value for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

class Job;

// The summary of a job that has ended, in numbers for a person. A value.
struct JobSummary {
  Duration time{};         // from the beginning to the end
  std::size_t worlds = 0;  // that were in force
  std::size_t size = 0;    // of the last one
  std::size_t lost = 0;    // workers that ended against their will, or failed
  std::size_t joined = 0;  // workers that came into a world after the first
  // Steps of the program that were done again since a world ended without a commit, as far as the
  // program's names of tensors tell.
  std::uint64_t redone = 0;
  Duration held_up{};  // of the time, in which hvdrun was stopped or could not run
  // The share of the time since the first world in which no loss was left to be replaced by a new
  // world, without the time in which hvdrun was held up. Workers need a moment more to meet in
  // that, of which nobody tells hvdrun. Nothing: there was no world.
  std::optional<double> outside_recovery;
};

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
