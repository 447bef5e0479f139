// Parts of a world that elastic workers have again in the next one: calls and threads that are told
// of the change, process sets, joins, the timeline, the tuner and the flight recorder.
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "base/text.h"
#include "tests/runtime/trace/trace_check.h"
#include "tests/support/process.h"
#include "tests/worker/elastic/elastic_workers.h"

namespace hvd::test {
namespace {

TEST_F(ElasticWorkers, AreToldInAnyThreadAndAnyCall) {
  environment_ = {{"UNTIL", "3"}};
  start_world(3, "threads");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  change_to(2, {0, 1}, {0, 1, 2});
  ASSERT_TRUE(worker(0).wait_for_output("generation 2"));
  worker(1).signal(SIGKILL);
  publish(world_of(3, {0}));
  const auto ended = wait_all();
  expect_all_done(ended, {0});
  EXPECT_EQ(ended[2].code, 0) << ended[2].err;
  EXPECT_NE(ended[0].out.find(", 6 threads were told"), std::string::npos) << ended[0].out;
}

TEST_F(ElasticWorkers, HaveTheirProcessSetsAgainInTheNextWorld) {
  environment_ = {{"UNTIL", "2"}};
  start_world(4, "sets");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  start_in(world_of(1, {0, 1, 2, 3}), "sets");
  ASSERT_TRUE(hears(4, Kind::ready));
  worker(2).signal(SIGKILL);
  publish(world_of(2, {1, 0, 3, 4}));
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 3, 4});
  for (const std::size_t i : {0U, 1U, 3U, 4U}) {
    const auto second = ended[i].out.substr(ended[i].out.find("generation 2"));
    EXPECT_NE(second.find(cat("set 1: set 1 of size 2, sum ", i <= 1 ? 2 : 1)), std::string::npos)
        << second;
    EXPECT_NE(second.find("set 2: code -13: hvd::ProcessSet(2).included(): process set 2 has lost "
                          "a#2."),
              std::string::npos)
        << second;
    EXPECT_NE(second.find("set 3: code -13"), std::string::npos) << second;
    // Those of worker 3 alone, 4 and 5, were made in the first world; it is not the last rank now.
    EXPECT_NE(second.find(cat("added: set 6 of size 1, sum 1")), std::string::npos) << second;
    EXPECT_EQ(second.find("own: set 7 of size 1, sum 1") != std::string::npos, i == 4) << second;
  }
}

TEST_F(ElasticWorkers, HaveProcessSetsThatShrinkIfTheProgramSaysSo) {
  environment_ = {{"UNTIL", "2"}, {"SHRINK", "1"}};
  start_world(4, "sets");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  worker(0).signal(SIGKILL);
  publish(world_of(2, {1, 2, 3}));
  const auto ended = wait_all();
  expect_all_done(ended, {1, 2, 3});
  for (const std::size_t i : {1U, 2U}) {
    const auto second = ended[i].out.substr(ended[i].out.find("generation 2"));
    EXPECT_NE(second.find("set 1: set 1 of size 1, sum 1"), std::string::npos) << second;
    EXPECT_NE(second.find(cat("set 2: set 2 of size 2, sum ", i == 3 ? 1 : 2)), std::string::npos)
        << second;
    EXPECT_NE(second.find(cat("set 3: set 3 of size 2, sum ", i == 3 ? 1 : 2)), std::string::npos)
        << second;
    // Added again, by the same worker: taken up.
    EXPECT_NE(second.find("added: set 4 of size 1, sum 1"), std::string::npos) << second;
  }
  const auto& last = ended[3].out;
  EXPECT_NE(last.find("own: set 5 of size 1, sum 1", last.find("generation 2")), std::string::npos)
      << last;
}

TEST_F(ElasticWorkers, AreToldWhileTheyWaitInAJoinAndJoinAnewInTheNextWorld) {
  start_world(3, "join");
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(worker(i).wait_for_output("in the middle\n"));
  worker(1).signal(SIGKILL);
  publish(world_of(2, {0, 2}));
  const auto ended = wait_all();
  expect_all_done(ended, {0, 2});
  EXPECT_NE(ended[0].out.find("alone: 1\n"), std::string::npos) << ended[0].out;
}

TEST_F(ElasticWorkers, HaveATimelineATunerAndARecorderInEachWorld) {
  const TemporaryDirectory directory;
  const auto file = [&](const char* name) { return (directory.path() / name).string(); };
  environment_ = {{"UNTIL", "3"},
                  {"HVD_TIMELINE", file("t.json")},
                  {"HVD_AUTOTUNE", "1"},
                  {"HVD_AUTOTUNE_LOG", file("tuning.csv")},
                  {"HVD_FLIGHT_RECORDER", file("flight")}};
  start_world(3, "train");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  worker(2).signal(SIGKILL);
  publish(world_of(2, {0, 1}));
  ASSERT_TRUE(worker(0).wait_for_output("generation 2"));
  change_to(3, {1}, {0, 1});
  const auto ended = wait_all();
  expect_all_done(ended, {1});
  EXPECT_EQ(ended[0].code, 0) << ended[0].err;
  for (const auto* const name : {"t.json", "t.generation-2.json", "t.generation-3.json"}) {
    const auto timeline = expect_right_timeline(file(name));
    EXPECT_GT(timeline.count(0, "ALLREDUCE"), 0) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "tuning.csv"));
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "flight/flight-recorder.rank-0.1.json"));
}

}  // namespace
}  // namespace hvd::test
