#include "runtime/tuning/autotuner.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/text.h"

namespace hvd::runtime {
namespace {

bool is_similar(double a, double b) {
  return a <= b * Autotuner::kSimilar && b <= a * Autotuner::kSimilar;
}

double each(std::size_t of, std::size_t by) {
  return static_cast<double>(of) / static_cast<double>(by);
}

// "4.2 %"
std::string percent(double logarithm) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << 100 * (std::exp(logarithm) - 1) << " %";
  return std::move(out).str();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool is_same_work(const Sample& a, const Sample& b) {
  if (!is_similar(each(a.bytes, a.tensors), each(b.bytes, b.tensors))) return false;
  if (a.steps == 0 || b.steps == 0) return true;
  return is_similar(each(a.bytes, static_cast<std::size_t>(a.steps)),
                    each(b.bytes, static_cast<std::size_t>(b.steps)));
}

Autotuner::Autotuner(const TuningOptions& options, const Parameters& defaults)
    : options_(options),
      defaults_(defaults),
      incumbent_(defaults),
      in_force_(defaults),
      warmups_left_(options.warmup_samples) {}

Autotuner::Step Autotuner::take(const Sample& sample) {
  Step step{in_force_, {}, false};
  // Without bytes or time there is no speed.
  if (sample.bytes == 0 || sample.tensors == 0 || sample.time <= Duration::zero()) {
    step.decision = "no bytes";
    return step;
  }

  changed_samples_ =
      phase_ == Phase::warming_up || is_same_work(sample, work_) ? 0 : changed_samples_ + 1;
  if (phase_ == Phase::warming_up && warmups_left_ > 0) {
    --warmups_left_;
    step.decision = "warming up";
  } else if (phase_ == Phase::warming_up) {
    step.decision = begin_search(sample, "ready");
  } else if (changed_samples_ >= kChangedSamples) {
    step.decision = begin_search(sample, "the work has changed");
  } else if (phase_ == Phase::watching) {
    step.decision = watch(sample);
  } else {
    step.decision = raced(sample);
  }

  step.changed = in_force_ != step.measured;
  return step;
}

std::string Autotuner::begin_search(const Sample& work, const std::string& why) {
  phase_ = Phase::searching;
  work_ = work;
  changed_samples_ = 0;
  samples_used_ = 0;
  improved_ = false;
  candidates_.emplace(incumbent_, defaults_, options_.frozen, work);
  return race_next(why);
}

std::string Autotuner::race_next(const std::string& so_far) {
  if (samples_used_ >= options_.max_samples - kCheckPairs) return end_search(so_far);
  const auto candidate = candidates_->next();
  if (!candidate) return end_search(so_far);
  start_race(incumbent_, *candidate);
  return so_far;
}

void Autotuner::start_race(const Parameters& base, const Parameters& challenger) {
  race_.emplace(options_.noise);
  base_ = base;
  challenger_ = challenger;
  pairs_begun_ = 0;
  first_.reset();
  in_force_ = base_;
}

// The order is A B, B A, A B: this needs half as many changes, and a machine that gets steadily
// slower or faster favours neither side.
bool Autotuner::is_challengers_turn() const {
  return (pairs_begun_ % 2 == 0) == first_.has_value();
}

std::string Autotuner::raced(const Sample& sample) {
  const bool challengers = is_challengers_turn();
  std::string side = phase_ == Phase::checking ? (challengers ? "found" : "defaults")
                                               : (challengers ? "challenger" : "incumbent");
  if (challengers) ++samples_used_;
  if (!first_) {
    first_ = sample;
    in_force_ = is_challengers_turn() ? challenger_ : base_;
    return side;
  }

  const Sample& other = *first_;
  if (is_same_work(other, sample)) {
    const Sample& theirs = challengers ? sample : other;
    const Sample& ours = challengers ? other : sample;
    race_->add(theirs.bytes_per_second(), ours.bytes_per_second());
  }

  first_.reset();
  ++pairs_begun_;
  const std::string judgement = judge();
  if (judgement.empty()) {
    in_force_ = is_challengers_turn() ? challenger_ : base_;
    return side;
  }

  return cat(side, ": ", judgement);
}

// The result of the race; empty: it goes on.
std::string Autotuner::judge() {
  const std::string by = percent(race_->mean());
  if (phase_ == Phase::checking) {
    // The full margin was shown before; here the candidate only needs to be ahead.
    if (pairs_begun_ < kCheckPairs) return {};
    if (race_->is_ahead(kCheckCertainty)) {
      return settle(cat(by, " faster than the defaults"));
    }
    incumbent_ = defaults_;
    improved_ = false;
    return settle(cat(by, " faster than the defaults; not significant: back to the defaults"));
  }

  auto verdict = race_->verdict();
  const bool used_up = samples_used_ >= options_.max_samples - kCheckPairs ||
                       // Most pairs were of different work and did not count.
                       pairs_begun_ >= 2 * Race::kMostPairs;
  if (verdict == Race::Verdict::undecided && used_up) verdict = Race::Verdict::lost;
  if (verdict == Race::Verdict::undecided) return {};

  const bool won = verdict == Race::Verdict::won;
  candidates_->result(won);
  if (won) {
    incumbent_ = challenger_;
    improved_ = true;
  }

  return race_next(cat("challenger ", won ? "won" : "lost", ", ", by, " faster"));
}

std::string Autotuner::end_search(const std::string& so_far) {
  if (incumbent_ == defaults_ || samples_used_ == 0) return settle(so_far);
  phase_ = Phase::checking;
  start_race(defaults_, incumbent_);
  return cat(so_far, "; checking");
}

std::string Autotuner::settle(const std::string& so_far) {
  phase_ = Phase::watching;
  in_force_ = incumbent_;
  drift_samples_ = improved_ ? kDriftSamples : std::min(drift_samples_ * 2, 1'000);
  speeds_.clear();
  drifting_ = 0;
  race_.reset();
  candidates_.reset();
  return cat(so_far, "; settled");
}

std::string Autotuner::watch(const Sample& sample) {
  const double speed = std::log(sample.bytes_per_second());
  if (speeds_.size() < kDriftSamples) {
    speeds_.push_back(speed);
    return "watching";
  }
  const bool off = std::abs(speed - median(speeds_)) > kDrift;
  drifting_ = off ? drifting_ + 1 : 0;
  if (drifting_ < drift_samples_) return "watching";
  return begin_search(sample, "the speed has changed");
}

}  // namespace hvd::runtime
