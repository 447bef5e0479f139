#include "runtime/tuning/race.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hvd::runtime {

void Race::add(double challenger_speed, double incumbent_speed) {
  logs_.push_back(std::clamp(std::log(challenger_speed / incumbent_speed), -kLargest, kLargest));
}

double Race::mean() const {
  if (logs_.empty()) return 0;
  return std::accumulate(logs_.begin(), logs_.end(), 0.0) / pairs();
}

double Race::standard_error() const {
  const double middle = mean();
  double squares = kBelief * believed_ * believed_;
  for (const double value : logs_) squares += (value - middle) * (value - middle);
  const double variance = squares / (kBelief + pairs() - 1);
  return std::sqrt(variance / pairs());
}

// The 99 % quantile of Student's t, approximated by the normal quantile and the first term of its
// expansion.
double Race::certainty_at(int pairs) {
  constexpr double kNormal = 2.326;
  constexpr double kTerm = (kNormal * kNormal * kNormal + kNormal) / 4;
  return kNormal + kTerm / (kBelief + pairs - 1);
}

bool Race::is_ahead(double certainty) const {
  const auto ahead = std::count_if(logs_.begin(), logs_.end(), [](double log) { return log > 0; });
  return 4 * ahead >= 3 * pairs() && mean() > certainty * standard_error();
}

Race::Verdict Race::verdict() const {
  if (pairs() == 0) return Verdict::undecided;
  if (pairs() >= kFewestPairs && mean() - certainty_at(pairs()) * standard_error() > kGain &&
      is_ahead(1)) {
    return Verdict::won;
  }
  if (pairs() >= kMostPairs) return Verdict::lost;
  // The first pair may be off by half of the believed spread; from then on the mean must be
  // positive enough, and the missing certainty must be within reach by the last pair.
  if (pairs() == 1) return mean() < kGain - believed_ / 2 ? Verdict::lost : Verdict::undecided;
  const double at_the_end = standard_error() * std::sqrt(pairs() / double{kMostPairs});
  const bool hopeless = mean() + standard_error() < kGain + certainty_at(kMostPairs) * at_the_end;
  return mean() < kGain || hopeless ? Verdict::lost : Verdict::undecided;
}

}  // namespace hvd::runtime
