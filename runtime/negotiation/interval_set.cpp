#include "runtime/negotiation/interval_set.h"

#include <algorithm>

namespace hvd::runtime {

IntervalSet IntervalSet::range(Value begin, Value end) {
  IntervalSet set;
  if (begin < end) set.append({begin, end});
  return set;
}

IntervalSet IntervalSet::of_values(std::vector<Value> values) {
  // Usually they are sorted already.
  if (!std::is_sorted(values.begin(), values.end())) std::sort(values.begin(), values.end());
  IntervalSet set;
  for (const Value value : values) set.append({value, value + 1});
  return set;
}

IntervalSet IntervalSet::of_ranks(const std::vector<int>& ranks) {
  return of_values({ranks.begin(), ranks.end()});
}

void IntervalSet::append(Interval interval) {
  if (!intervals_.empty() && interval.begin <= intervals_.back().end) {
    auto& last = intervals_.back();
    if (interval.end <= last.end) return;
    size_ += interval.end - last.end;
    last.end = interval.end;
    return;
  }
  size_ += interval.end - interval.begin;
  intervals_.push_back(interval);
}

bool IntervalSet::contains(Value value) const {
  const auto after =
      std::upper_bound(intervals_.begin(), intervals_.end(), value,
                       [](Value v, const Interval& interval) { return v < interval.begin; });
  return after != intervals_.begin() && value < std::prev(after)->end;
}

bool IntervalSet::contains_all(const IntervalSet& other) const {
  auto own = intervals_.begin();
  for (const auto& wanted : other.intervals_) {
    while (own != intervals_.end() && own->end < wanted.end) ++own;
    if (own == intervals_.end() || own->begin > wanted.begin) return false;
  }
  return true;
}

bool IntervalSet::intersects(const IntervalSet& other) const {
  auto a = intervals_.begin();
  auto b = other.intervals_.begin();
  while (a != intervals_.end() && b != other.intervals_.end()) {
    if (a->end <= b->begin) {
      ++a;
    } else if (b->end <= a->begin) {
      ++b;
    } else {
      return true;
    }
  }
  return false;
}

void IntervalSet::unite(const IntervalSet& other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }

  if (intervals_.back().begin <= other.intervals_.front().begin) {
    for (const auto& interval : other.intervals_) append(interval);
    return;
  }

  IntervalSet both;
  both.intervals_.reserve(intervals_.size() + other.intervals_.size());
  auto a = intervals_.begin();
  auto b = other.intervals_.begin();
  while (a != intervals_.end() || b != other.intervals_.end()) {
    if (b == other.intervals_.end() || (a != intervals_.end() && a->begin <= b->begin)) {
      both.append(*a++);
    } else {
      both.append(*b++);
    }
  }
  *this = std::move(both);
}

void IntervalSet::subtract(const IntervalSet& other) {
  if (intersects(other)) *this = difference(other);
}

IntervalSet IntervalSet::intersection(const IntervalSet& other) const {
  IntervalSet common;
  auto a = intervals_.begin();
  auto b = other.intervals_.begin();
  while (a != intervals_.end() && b != other.intervals_.end()) {
    const Interval piece{std::max(a->begin, b->begin), std::min(a->end, b->end)};
    if (piece.begin < piece.end) common.append(piece);
    if (a->end < b->end) {
      ++a;
    } else {
      ++b;
    }
  }
  return common;
}

IntervalSet IntervalSet::difference(const IntervalSet& other) const {
  IntervalSet left;
  auto b = other.intervals_.begin();
  for (Interval piece : intervals_) {
    while (b != other.intervals_.end() && b->end <= piece.begin) ++b;
    for (auto hole = b; hole != other.intervals_.end() && hole->begin < piece.end; ++hole) {
      if (piece.begin < hole->begin) left.append({piece.begin, hole->begin});
      piece.begin = std::max(piece.begin, std::min(hole->end, piece.end));
    }
    if (piece.begin < piece.end) left.append(piece);
  }
  return left;
}

std::vector<int> IntervalSet::ranks() const {
  std::vector<int> all;
  all.reserve(size_);
  for_each([&](Value value) { all.push_back(static_cast<int>(value)); });
  return all;
}

void IntervalSet::encode(WireWriter& out) const {
  out.u32(static_cast<std::uint32_t>(intervals_.size()));
  for (const auto& interval : intervals_) out.u64(interval.begin).u64(interval.end);
}

std::optional<IntervalSet> IntervalSet::decode(WireReader& in, Value limit) {
  IntervalSet set;
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    const Value begin = in.u64();
    const Value end = in.u64();
    const bool ascends = set.empty() || begin > set.intervals_.back().end;
    if (in.failed() || begin >= end || end > limit || !ascends) return std::nullopt;
    set.append({begin, end});
  }
  if (in.failed()) return std::nullopt;
  return set;
}

}  // namespace hvd::runtime
