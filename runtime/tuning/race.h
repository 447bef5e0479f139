// A statistical test: is the challenger faster than the parameters in force? Both are measured in
// turns, so that disturbances of the machine affect both, and each pair of samples gives one
// number: the logarithm of the ratio of their speeds. The challenger wins when the mean of these is
// better than kGain with a certainty of 99 % (by Student's t) and it was ahead in three pairs of
// four, and loses as soon as that has become unlikely. A challenger that is not shown to be better
// has lost: a search that takes the best of many noisy samples would end with the luckiest, not
// with the best.
//
// `noise` (0 to 1) is a prior belief about the spread of the pairs: 0.1 times it, with the weight
// of kBelief pairs. So two pairs that happen to agree prove little. With 0 the pairs alone count.
//
// A pure value.
#pragma once

#include <vector>

namespace hvd::runtime {

class Race {
 public:
  enum class Verdict { undecided, won, lost };
  static constexpr double kGain = 0.01;
  static constexpr int kBelief = 2;
  static constexpr int kFewestPairs = 3;
  static constexpr int kMostPairs = 8;
  // Bounds one pair's weight: a pause of some seconds in one sample must not look like a gain of
  // that size.
  static constexpr double kLargest = 1.0;

  explicit Race(double noise) : believed_(0.1 * noise) {}

  void add(double challenger_speed, double incumbent_speed);
  Verdict verdict() const;
  // Weaker than a win: ahead by `certainty` standard errors and in three pairs of four.
  bool is_ahead(double certainty) const;
  int pairs() const { return static_cast<int>(logs_.size()); }
  double mean() const;  // of the logarithms
  double standard_error() const;

 private:
  static double certainty_at(int pairs);  // in standard errors
  double believed_;
  std::vector<double> logs_;
};

}  // namespace hvd::runtime
