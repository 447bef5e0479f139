#include "runtime/negotiation/stall_inspector.h"

#include <gtest/gtest.h>

#include "tests/runtime/negotiation/negotiation_tools.h"
#include "tests/runtime/negotiation/simulated_world.h"

namespace hvd::runtime {
namespace {

using std::chrono::seconds;
using test::SimulatedWorld;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Config config_of(seconds warning, seconds shutdown) {
  Config config;
  config.stall_warning = warning;
  config.stall_shutdown = shutdown;
  return config;
}

// Six ranks, two on a host; all have run "before", then rank 3 does not request "late" and "later".
class Stall : public ::testing::Test {
 protected:
  void stall(SimulatedWorld& world) {
    for (int rank = 0; rank < 6; ++rank) world.submit(rank, {test::tensor("before")});
    world.run(seconds(1));
    for (int rank = 0; rank < 6; ++rank) {
      if (rank != 3) world.submit(rank, {test::tensor("late"), test::tensor("later")});
    }
  }
};

TEST_F(Stall, IsReportedOnceWithTensorsRanksAndWhatTheyDidLast) {
  SimulatedWorld world(6, 2, 1, config_of(seconds(60), seconds(0)));
  stall(world);
  world.run(seconds(59));
  EXPECT_TRUE(world.warnings().empty());
  world.run(seconds(5));
  ASSERT_EQ(world.warnings().size(), 1U);
  const auto& text = world.warnings()[0];
  EXPECT_TRUE(contains(text, "rank 3 on host1 has not asked for \"late\", \"later\"")) << text;
  EXPECT_TRUE(contains(text, "it asked for \"before\" last, 6")) << text;
  EXPECT_FALSE(contains(text, "rank 2")) << text;
  EXPECT_EQ(world.failure(), "");
}

TEST_F(Stall, IsReportedAgainNoMoreOftenThanTheInterval) {
  SimulatedWorld world(6, 2, 1, config_of(seconds(60), seconds(0)));
  stall(world);
  world.run(seconds(10 * 60 + 5));
  EXPECT_EQ(world.warnings().size(), 10U);
}

TEST_F(Stall, IsReportedWhenItEndsToo) {
  SimulatedWorld world(6, 2, 1, config_of(seconds(60), seconds(0)));
  stall(world);
  world.run(seconds(100));
  world.submit(3, {test::tensor("later"), test::tensor("late")});
  world.run(seconds(100));
  ASSERT_EQ(world.recoveries().size(), 2U);
  EXPECT_TRUE(contains(world.recoveries()[0], "\"late\" goes on, after it had waited for 100 s"))
      << world.recoveries()[0];
  EXPECT_EQ(world.warnings().size(), 1U);
  EXPECT_EQ(world.in_flight(), 0U);
}

TEST_F(Stall, ThatLastsTooLongEndsTheWorldAndNamesTheRank) {
  SimulatedWorld world(6, 2, 1, config_of(seconds(60), seconds(150)));
  stall(world);
  world.run(seconds(1000));
  EXPECT_EQ(world.warnings().size(), 2U);
  EXPECT_TRUE(contains(world.failure(), "the limit is 150 s")) << world.failure();
  EXPECT_TRUE(contains(world.failure(), "rank 3 on host1")) << world.failure();
}

// One rank took a different path than the other five: it waits for them, and they for it.
TEST_F(Stall, OfRanksThatWaitForEachOtherTheFewerAreBlamed) {
  const ControlTree tree(test::hosts(6));
  ResponseCache cache{4};
  const ProcessSets sets(6);
  MessageTable table(cache, sets, test::ranks({0, 1, 2, 3, 4, 5}));
  StallInspector inspector(tree, seconds(60), seconds(60));
  MessageTable::Touched touched;
  const TimePoint begin{seconds(1000)};
  for (const int rank : {4, 0, 1, 2, 3, 5}) {
    const auto request = test::tensor(rank == 4 ? "finish" : "sums");
    const auto since = begin + (rank == 4 ? seconds(0) : seconds(1));
    ASSERT_TRUE(table.add(test::asked(rank, request), since, touched).ok());
  }
  inspector.next_look(table, begin + seconds(1));
  const auto findings = inspector.look(table, LastRequests(), begin + seconds(100));
  EXPECT_EQ(findings.failure.rank, 4) << findings.failure.status.message();
}

TEST_F(Stall, ALimitBelowTheWarningTimeIsKeptToo) {
  SimulatedWorld world(6, 2, 1, config_of(seconds(60), seconds(20)));
  stall(world);
  world.run(seconds(25));
  EXPECT_TRUE(contains(world.failure(), "the limit is 20 s")) << world.failure();
}

TEST_F(Stall, IsIgnoredWhenTheCheckIsOff) {
  SimulatedWorld world(6, 2, 1, config_of(seconds(0), seconds(0)));
  stall(world);
  world.run(seconds(10'000));
  EXPECT_TRUE(world.warnings().empty());
}

// As when the world fails at once: what a rank did last is heard only later.
TEST_F(Stall, TheLastRequestOfARankThatSentNoneIsNotKnown) {
  SimulatedWorld world(2, 2, 1, config_of(seconds(60), seconds(0)));
  world.submit(0, {test::tensor("only by rank 0")});
  world.run(seconds(1));
  const auto text = world.negotiator(0).missing_text(world.now());
  EXPECT_TRUE(contains(text, "rank 1 on host0 has not asked for \"only by rank 0\"; ")) << text;
  EXPECT_FALSE(contains(text, "part of the tree")) << text;
  EXPECT_TRUE(contains(text, "what it asked for last is not known")) << text;
}

TEST_F(Stall, OfManyRanksAndTensorsIsCountedNotListed) {
  SimulatedWorld world(100, 8, 1, config_of(seconds(60), seconds(0)));
  std::vector<Request> requests;
  for (int i = 0; i < 50; ++i) requests.push_back(test::tensor(cat("tensor", i)));
  world.submit(99, requests);
  world.run(seconds(70));
  ASSERT_EQ(world.warnings().size(), 1U);
  const auto& text = world.warnings()[0];
  EXPECT_TRUE(contains(text, "and 44 more")) << text;
  EXPECT_TRUE(contains(text, "and 93 more ranks")) << text;
  EXPECT_TRUE(contains(text, "it has asked for nothing so far")) << text;
  EXPECT_LT(text.size(), 2000U);
}

}  // namespace
}  // namespace hvd::runtime
