// Finds parameters under which the work at hand is faster than with the defaults, and never lets go
// of what is in force for less than that: a search races candidates (candidates.h), one at a time,
// against the parameters in force, in turns (race.h). What a search has ended with is raced against
// the defaults once more, and falls if it is not ahead of them.
//
//     warming up -> searching -> checking -> watching -> searching ...
//
// It goes on for as long as the world lives: when the work changes (bytes of a tensor or of a step)
// or the speed does for good, it searches again, the defaults first.
//
// A pure state machine, fed with samples; for one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/parameters.h"
#include "runtime/tuning/candidates.h"
#include "runtime/tuning/race.h"
#include "runtime/tuning/step_meter.h"

namespace hvd::runtime {

class Autotuner {
 public:
  static constexpr int kCheckPairs = 4;  // of TuningOptions::max_samples
  static constexpr double kCheckCertainty = 2;
  static constexpr double kSimilar = 1.25;  // work that differs by less is the same
  static constexpr int kStrange = 3;        // samples of other work in a row: it has changed
  static constexpr double kDrift = 0.3;     // of the logarithm of the speed, for good
  static constexpr int kPatience = 5;       // samples that make "for good", at first

  Autotuner(const TuningOptions& options, const Parameters& defaults);

  // In force now.
  const Parameters& parameters() const { return in_force_; }
  bool is_searching() const { return phase_ == Phase::searching || phase_ == Phase::checking; }
  bool is_watching() const { return phase_ == Phase::watching; }

  struct Step {
    Parameters measured;   // under these
    std::string decision;  // in words
    bool changed = false;  // others are in force from now on
  };
  Step take(const Sample& sample);

 private:
  enum class Phase { warming_up, searching, checking, watching };

  std::string begin_search(const Sample& work, const std::string& why);
  std::string race_next(const std::string& so_far);
  std::string raced(const Sample& sample);
  std::string judge();
  std::string end_search(const std::string& so_far);
  std::string settle(const std::string& so_far);
  std::string watch(const Sample& sample);
  void start_race(const Parameters& base, const Parameters& challenger);
  bool is_challengers_turn() const;

  TuningOptions options_;
  Parameters defaults_;
  Parameters incumbent_;  // the best so far
  Parameters in_force_;
  Phase phase_ = Phase::warming_up;
  int warmups_left_;
  Sample work_;  // what the search is for
  int strange_ = 0;

  // Searching and checking.
  std::optional<Candidates> candidates_;
  std::optional<Race> race_;
  Parameters base_;
  Parameters challenger_;
  int pairs_begun_ = 0;          // of this race
  std::optional<Sample> first_;  // of the pair that is under way
  int samples_used_ = 0;         // of the challengers, in this search
  bool improved_ = false;

  // Watching.
  std::vector<double> speeds_;  // the first ones, whose median is what is usual
  int drifting_ = 0;
  int patience_ = kPatience;
};

// Whether both are samples of the same work.
bool is_same_work(const Sample& a, const Sample& b);

}  // namespace hvd::runtime
