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

Race::Verdict Race::verdict() const {
  if (pairs() == 0) return Verdict::undecided;
  // The first pair may be off by half of what we believe; then the mean must be on our side.
  const double slack = pairs() == 1 ? believed_ / 2 : 0;
  if (mean() < kGain - slack) return Verdict::lost;
  if (pairs() < kFewestPairs) return Verdict::undecided;
  if (mean() - kCertainty * standard_error() > kGain) return Verdict::won;
  return pairs() >= kMostPairs ? Verdict::lost : Verdict::undecided;
}

}  // namespace hvd::runtime
