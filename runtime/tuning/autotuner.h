// Finds parameters under which the current work is faster than with the defaults, and never changes
// the parameters in force without evidence: a search races candidates (candidates.h), one at a
// time, against the parameters in force, in alternating samples (race.h). The result of a search is
// then raced against the defaults once more, and dropped if it is not ahead of them.
//
//     warming up -> searching -> checking -> watching -> searching ...
//
// Tuning goes on for as long as the world lives: when the work changes (bytes of a tensor or of a
// step), or the speed changes permanently, a new search begins with the defaults as its first
// candidate.
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
  static constexpr int kCheckPairs = 4;  // reserved from TuningOptions::max_samples
  static constexpr double kCheckCertainty = 2;
  // Two samples are of the same work if they differ by less.
  static constexpr double kSimilar = 1.25;
  // Consecutive samples of other work after which it has changed.
  static constexpr int kChangedSamples = 3;
  static constexpr double kDrift = 0.3;  // of the logarithm of the speed
  // Consecutive samples off by kDrift until a new search begins, at first.
  static constexpr int kDriftSamples = 5;

  Autotuner(const TuningOptions& options, const Parameters& defaults);

  // The parameters in force.
  const Parameters& parameters() const { return in_force_; }
  bool is_searching() const { return phase_ == Phase::searching || phase_ == Phase::checking; }
  bool is_watching() const { return phase_ == Phase::watching; }

  struct Step {
    Parameters measured;   // the parameters during the sample
    std::string decision;  // for the log
    bool changed = false;  // the parameters in force have changed
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
  Sample work_;  // the work for which the search runs
  int changed_samples_ = 0;

  // Searching and checking.
  std::optional<Candidates> candidates_;
  std::optional<Race> race_;
  Parameters base_;
  Parameters challenger_;
  int pairs_begun_ = 0;          // pairs begun in this race
  std::optional<Sample> first_;  // the first sample of the current pair
  int samples_used_ = 0;         // of challengers, in this search
  bool improved_ = false;

  // Watching.
  std::vector<double> speeds_;  // the first ones, whose median is the usual speed
  int drifting_ = 0;
  int drift_samples_ = kDriftSamples;
};

// Whether both are samples of the same work.
bool is_same_work(const Sample& a, const Sample& b);

}  // namespace hvd::runtime
