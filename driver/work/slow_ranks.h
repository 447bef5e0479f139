// Finds the ranks for which the others wait. The ranks of a data-parallel program do the same work
// and meet in each step: so the time that a rank waits for others is what it is faster than the
// slowest one. A slow rank hardly waits, while the others do.
//
// Time is divided into rounds, of at least kRound and of at least one step of the program. In each
// round a rank is late if it waited for less than the others did: the difference, as a share of the
// round, to their median is at least kLate. A rank that is late in kMostRounds of the last kRounds,
// and on average over them, is slow. A slow rank that is late in none of kRounds is slow no longer.
// So a pause of one rank, for a checkpoint for example, is not taken for slowness.
//
// Pure: times are handed in. For one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/protocol/work_reading.h"

namespace hvd::driver {

class SlowRanks {
 public:
  static constexpr std::chrono::milliseconds kRound{1000};
  static constexpr std::size_t kRounds = 10;
  static constexpr std::size_t kMostRounds = 9;
  static constexpr double kLate = 0.25;

  struct Rank {
    std::uint64_t incarnation = 0;
    const WorkReading* newest = nullptr;  // null: it has not reported anything
  };
  struct Change {
    std::uint64_t incarnation = 0;
    bool slow = false;
    double share = 0;  // of the time, during which the others waited for it: lateness()
  };

  // To be called about once a second. `world`: all members of the world in force; in a different
  // one the rounds begin anew, and a slow rank stays slow. Returns those that have become slow, or
  // are slow no longer.
  std::vector<Change> look(const std::vector<Rank>& world);
  // How much of the time the others wait for this rank, on average over its last rounds; 0 for
  // one that is not late.
  double lateness(std::uint64_t incarnation) const;
  bool is_slow(std::uint64_t incarnation) const;

 private:
  struct Record {
    WorkReading begin;        // of the current round
    std::deque<double> late;  // by how much, in the last rounds; below 0: it waited longer
    double share = 0;         // lateness() before these rounds
    bool slow = false;
  };
  static constexpr std::uint64_t kLongestStep = 10;  // rounds; else there are no steps
  bool is_same_world(const std::vector<Rank>& world) const;
  void begin(const std::vector<Rank>& world);
  static bool round_is_over(const WorkReading& begin, const WorkReading& now);
  void end_round(const std::vector<Rank>& world);

  std::map<std::uint64_t, Record> records_;  // by incarnation
};

}  // namespace hvd::driver
