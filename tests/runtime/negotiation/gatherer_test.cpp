#include "runtime/negotiation/gatherer.h"

#include <gtest/gtest.h>

#include "runtime/negotiation/last_requests.h"
#include "tests/runtime/negotiation/negotiation_tools.h"

namespace hvd::runtime {
namespace {

using std::chrono::milliseconds;
using test::asked;
using test::ranks;
using test::tensor;

// Rank 1 of host1 = {1, 2, 3}, with 2 and 3 below it; rank 0 is on a host of its own.
class GathererTest : public ::testing::Test {
 protected:
  GathererTest() {
    std::vector<EvictedTensor> evicted;
    for (const auto* name : {"a", "b", "c"}) {
      cache_.agreed(std::make_shared<const ResponseTensor>(ResponseTensor{tensor(name), {}}),
                    evicted);
    }
  }
  void known(int rank, IntervalSet ids) {
    RequestList message;
    message.cached.push_back({ranks({rank}), std::move(ids)});
    const Status taken = gatherer_.take(rank, std::move(message), now_);
    ASSERT_TRUE(taken.ok()) << taken.to_string();
  }
  void whole(int rank, const Request& request) {
    RequestList message;
    message.full.push_back(asked(rank, request));
    const Status taken = gatherer_.take(rank, std::move(message), now_);
    ASSERT_TRUE(taken.ok()) << taken.to_string();
  }
  void join(int rank) {
    RequestList message;
    message.joined = ranks({rank});
    ASSERT_TRUE(gatherer_.take(rank, std::move(message), now_).ok());
  }
  RequestList collect() { return gatherer_.collect(now_); }

  static constexpr milliseconds kHold{100};
  ControlTree tree_{{"host0", "host1", "host1", "host1"}};
  ResponseCache cache_{10};
  ProcessSets sets_{4};
  Gatherer gatherer_{cache_, sets_, tree_, 1, kHold};
  TimePoint now_{};
};

TEST_F(GathererTest, PassesOnTensorsThatTheWholeSubtreeIsReadyForAsOne) {
  known(1, IntervalSet::range(0, 3));
  known(3, IntervalSet::range(0, 2));
  EXPECT_TRUE(collect().empty());
  known(2, IntervalSet::range(0, 2));
  auto up = collect();
  ASSERT_EQ(up.cached.size(), 1U);
  EXPECT_EQ(up.cached[0], (CachedRequests{ranks({1, 2, 3}), IntervalSet::range(0, 2)}));
  EXPECT_TRUE(up.full.empty() && up.last_requests.empty());
  EXPECT_TRUE(collect().empty());
}

TEST_F(GathererTest, MergesEqualRequestsAndKeepsTheExtentsOfRaggedOnes) {
  whole(3, test::of_kind(Kind::allgather, "new", {30, 2}));
  whole(1, test::of_kind(Kind::allgather, "new", {10, 2}));
  whole(2, test::of_kind(Kind::allgather, "new", {20, 2}));
  const auto up = collect();
  ASSERT_EQ(up.full.size(), 1U);
  EXPECT_EQ(up.full[0].ranks, ranks({1, 2, 3}));
  EXPECT_EQ(up.full[0].first_extents, (std::vector<std::int64_t>{10, 20, 30}));
}

TEST_F(GathererTest, PassesOnRequestsThatDifferSideBySide) {
  known(1, IntervalSet::of(0));
  whole(2, tensor("a", 9));
  known(3, IntervalSet::of(0));
  const auto up = collect();
  ASSERT_EQ(up.cached.size(), 1U);
  EXPECT_EQ(up.cached[0], (CachedRequests{ranks({1, 3}), IntervalSet::of(0)}));
  ASSERT_EQ(up.full.size(), 1U);
  EXPECT_EQ(up.full[0].ranks, ranks({2}));
}

TEST_F(GathererTest, PassesOnAPartWhenSomebodyIsLateWithWhatIsKnownOfAllAndTheRestAtOnce) {
  known(2, IntervalSet::of(1));
  known(1, IntervalSet::of(1));
  known(3, IntervalSet::of(1));
  EXPECT_FALSE(collect().empty());
  now_ += milliseconds(10);
  known(1, IntervalSet::of(0));
  known(3, IntervalSet::of(0));
  EXPECT_TRUE(collect().empty());
  EXPECT_LE(gatherer_.next_collect(), now_ + kHold);
  now_ += kHold - milliseconds(1);
  EXPECT_TRUE(collect().empty());
  now_ += milliseconds(1);
  auto up = collect();
  ASSERT_EQ(up.cached.size(), 1U);
  EXPECT_EQ(up.cached[0], (CachedRequests{ranks({1, 3}), IntervalSet::of(0)}));
  ASSERT_EQ(up.last_requests.size(), 3U);
  EXPECT_EQ(up.last_requests[1], (LastRequest{2, "b", milliseconds(10) + kHold}));
  known(2, IntervalSet::of(0));
  up = collect();
  ASSERT_EQ(up.cached.size(), 1U);
  EXPECT_EQ(up.cached[0].ranks, ranks({2}));
  // Nothing is left to be late: the time comes once more, and then never.
  now_ += kHold;
  EXPECT_TRUE(collect().empty());
  EXPECT_EQ(gatherer_.next_collect(), kNever);
}

TEST_F(GathererTest, AJoinedRankIsNotWaitedForAndItsRequestsGoFirst) {
  known(1, IntervalSet::of(0));
  known(2, IntervalSet::of(0));
  known(3, IntervalSet::of(1));
  join(3);
  const auto up = collect();
  EXPECT_EQ(up.joined, ranks({3}));
  ASSERT_EQ(up.cached.size(), 2U);
  EXPECT_EQ(up.cached[0], (CachedRequests{ranks({1, 2}), IntervalSet::of(0)}));
  EXPECT_EQ(up.cached[1], (CachedRequests{ranks({3}), IntervalSet::of(1)}));
  gatherer_.join_ended();
  known(1, IntervalSet::of(2));
  known(2, IntervalSet::of(2));
  EXPECT_TRUE(collect().empty());
}

TEST_F(GathererTest, ForgetsRequestsByAnIdThatHasGone) {
  known(1, IntervalSet::of(0));
  known(2, IntervalSet::of(0));
  std::vector<EvictedTensor> evicted;
  cache_.agreed(std::make_shared<const ResponseTensor>(ResponseTensor{tensor("a", 9), {}}),
                evicted);
  gatherer_.evicted(evicted);
  known(3, IntervalSet::of(0));  // it was under way
  EXPECT_TRUE(collect().empty());
  for (int rank = 1; rank < 4; ++rank) whole(rank, tensor("a"));
  const auto up = collect();
  ASSERT_EQ(up.full.size(), 1U);
  EXPECT_EQ(up.full[0].ranks, ranks({1, 2, 3}));
  EXPECT_TRUE(up.cached.empty());
}

TEST_F(GathererTest, PassesEverythingAtOnceWhenToldSo) {
  known(1, IntervalSet::of(0));
  gatherer_.forward_immediately();
  EXPECT_EQ(collect().cached.at(0).ranks, ranks({1}));
  known(2, IntervalSet::of(1));
  EXPECT_EQ(collect().cached.at(0).ranks, ranks({2}));
  // It was answered by an error that is still on its way here, and is asked for again.
  known(2, IntervalSet::of(1));
  EXPECT_EQ(collect().cached.at(0).ranks, ranks({2}));
}

TEST_F(GathererTest, WaitsForMembersOfTheProcessSetOnly) {
  sets_.add(ranks({0, 2, 3}));
  whole(2, test::in_set(tensor("a"), 1));
  EXPECT_TRUE(collect().empty());
  whole(3, test::in_set(tensor("a"), 1));
  EXPECT_EQ(collect().full.at(0).ranks, ranks({2, 3}));
}

TEST(LastRequests, OfARankAreTheNewestAlsoIfTwoHaveOneTime) {
  LastRequests words;
  const TimePoint now{};
  words.heard(2, "first", now + milliseconds(5));
  words.heard(2, "second", now + milliseconds(5));
  words.heard(2, "older", now);
  EXPECT_EQ(words.tell(now + milliseconds(7)),
            (std::vector<LastRequest>{{2, "second", milliseconds(2)}}));
}

}  // namespace
}  // namespace hvd::runtime
