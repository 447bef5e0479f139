// Sets of ranks and of cache ids, as sorted intervals: ten thousand ranks that request the same
// tensor, or a hundred consecutive ids, take a few numbers. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "base/wire.h"

namespace hvd::runtime {

class IntervalSet {
 public:
  using Value = std::uint64_t;
  struct Interval {
    Value begin = 0;
    Value end = 0;  // one past the last
    friend bool operator==(const Interval&, const Interval&) = default;
    friend bool operator<(const Interval& a, const Interval& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    }
  };

  IntervalSet() = default;
  static IntervalSet of(Value value) { return range(value, value + 1); }
  static IntervalSet range(Value begin, Value end);
  // The set of these values, in any order.
  static IntervalSet of_values(std::vector<Value> values);
  static IntervalSet of_ranks(const std::vector<int>& ranks);

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool contains(Value value) const;
  bool contains_all(const IntervalSet& other) const;
  bool intersects(const IntervalSet& other) const;
  // The set must not be empty.
  Value front() const { return intervals_.front().begin; }
  Value back() const { return intervals_.back().end - 1; }

  void insert(Value value) {
    if (empty() || intervals_.back().begin <= value) {
      append({value, value + 1});
    } else {
      unite(of(value));
    }
  }
  void unite(const IntervalSet& other);
  void subtract(const IntervalSet& other);
  IntervalSet intersection(const IntervalSet& other) const;
  IntervalSet difference(const IntervalSet& other) const;

  const std::vector<Interval>& intervals() const { return intervals_; }
  std::vector<int> ranks() const;
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& interval : intervals_) {
      for (Value value = interval.begin; value < interval.end; ++value) visit(value);
    }
  }

  void encode(WireWriter& out) const;
  // Empty if the next bytes are not a set of values below `limit`.
  static std::optional<IntervalSet> decode(WireReader& in, Value limit);

  friend bool operator==(const IntervalSet&, const IntervalSet&) = default;
  friend bool operator<(const IntervalSet& a, const IntervalSet& b) {
    return a.intervals_ < b.intervals_;
  }

 private:
  void append(Interval interval);  // which begins no earlier than the last one

  std::vector<Interval> intervals_;  // ascending, not empty, not touching
  std::size_t size_ = 0;
};

using RankSet = IntervalSet;

}  // namespace hvd::runtime
