#include "runtime/negotiation/interval_set.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace hvd::runtime {
namespace {

using Plain = std::set<IntervalSet::Value>;

Plain plain(const IntervalSet& set) {
  Plain all;
  set.for_each([&](IntervalSet::Value value) { all.insert(value); });
  return all;
}

// In the one form that a set has.
IntervalSet of(const Plain& values) {
  IntervalSet set;
  for (const auto value : values) set.insert(value);
  return set;
}

TEST(IntervalSet, DoesWhatAPlainSetDoes) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    IntervalSet a;
    IntervalSet b;
    Plain pa;
    Plain pb;
    const auto fill = [&](IntervalSet& set, Plain& values) {
      for (auto left = random() % 12; left > 0; --left) {
        const auto begin = random() % 40;
        const auto end = begin + random() % 5;
        set.unite(IntervalSet::range(begin, end));
        for (auto value = begin; value < end; ++value) values.insert(value);
      }
    };
    fill(a, pa);
    fill(b, pb);
    ASSERT_EQ(plain(a), pa);
    ASSERT_EQ(a.size(), pa.size());
    Plain common;
    std::set_intersection(pa.begin(), pa.end(), pb.begin(), pb.end(),
                          std::inserter(common, common.end()));
    Plain less;
    std::set_difference(pa.begin(), pa.end(), pb.begin(), pb.end(),
                        std::inserter(less, less.end()));
    Plain both = pa;
    both.insert(pb.begin(), pb.end());
    ASSERT_EQ(plain(a.intersection(b)), common);
    ASSERT_EQ(a.intersection(b), of(common));
    ASSERT_EQ(plain(a.difference(b)), less);
    ASSERT_EQ(a.difference(b), of(less));
    ASSERT_EQ(a.difference(b).size(), less.size());
    ASSERT_EQ(a.intersects(b), !common.empty());
    ASSERT_EQ(a.contains_all(b), std::includes(pa.begin(), pa.end(), pb.begin(), pb.end()));
    for (IntervalSet::Value value = 0; value < 50; ++value) {
      ASSERT_EQ(a.contains(value), pa.contains(value));
    }
    auto united = a;
    united.unite(b);
    ASSERT_EQ(plain(united), both);
    ASSERT_EQ(united == a, both == pa);  // one form for one set
    if (!pa.empty()) {
      ASSERT_EQ(a.front(), *pa.begin());
      ASSERT_EQ(a.back(), *pa.rbegin());
    }
    WireWriter out;
    a.encode(out);
    WireReader in(out.bytes());
    ASSERT_EQ(IntervalSet::decode(in, 100), a);
  }
}

TEST(IntervalSet, AdjacentIntervalsAreMerged) {
  IntervalSet set;
  for (const int rank : {3, 1, 2, 0}) set.insert(static_cast<IntervalSet::Value>(rank));
  EXPECT_EQ(set.intervals().size(), 1U);
  EXPECT_EQ(set, IntervalSet::range(0, 4));
  EXPECT_EQ(IntervalSet::of_ranks({2, 0, 1}).ranks(), (std::vector<int>{0, 1, 2}));
}

TEST(IntervalSet, ImpossibleSetsAreRefused) {
  const auto decodes = [](const std::vector<std::uint64_t>& numbers, IntervalSet::Value limit) {
    WireWriter out;
    out.u32(static_cast<std::uint32_t>(numbers.size() / 2));
    for (const auto number : numbers) out.u64(number);
    WireReader in(out.bytes());
    return IntervalSet::decode(in, limit).has_value();
  };
  EXPECT_TRUE(decodes({1, 3, 5, 6}, 6));
  EXPECT_FALSE(decodes({1, 3, 5, 6}, 5));  // beyond the limit
  EXPECT_FALSE(decodes({5, 6, 1, 3}, 9));  // descends
  EXPECT_FALSE(decodes({1, 3, 3, 4}, 9));  // touches
  EXPECT_FALSE(decodes({3, 3}, 9));        // empty
  EXPECT_FALSE(decodes({4, 3}, 9));
  WireWriter out;
  out.u32(1'000'000'000);
  WireReader in(out.bytes());
  EXPECT_FALSE(IntervalSet::decode(in, 9).has_value());
}

}  // namespace
}  // namespace hvd::runtime
