// Elastic workers that lose others, at any point of their work or of a change, or a connection.
#include <csignal>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/worker/elastic/elastic_workers.h"

namespace hvd::test {
namespace {

constexpr const char* kNoOtherWorld =
    "generation 1 has failed, and hvdrun has announced no other world yet; its members try to form "
    "it again: ";

class InEachMode : public ElasticWorkers, public ::testing::WithParamInterface<const char*> {};

TEST_P(InEachMode, WorkersGoOnFromTheNewestCommitWhenOneOfThemIsKilled) {
  environment_ = {{"UNTIL", "2"}, {"MODE", GetParam()}};
  start_world(4, "train");
  for (std::size_t i = 0; i < 4; ++i) ASSERT_TRUE(worker(i).wait_for_output("commit 5\n"));
  worker(2).signal(SIGKILL);
  publish(world_of(2, {0, 1, 3}));
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 3});
  for (const std::size_t i : {0U, 1U, 3U}) {
    EXPECT_GE(step_at_entry(ended[i], 2), commit_before(ended[i], 2)) << ended[i].out;
    EXPECT_EQ(step_at_entry(ended[i], 2), step_at_entry(ended[0], 2));
    EXPECT_NE(ended[i].out.find("resets 1"), std::string::npos);
  }
}
INSTANTIATE_TEST_SUITE_P(Elastic, InEachMode, ::testing::Values("copy", "mark"),
                         [](const auto& mode) { return std::string(mode.param); });

TEST_F(ElasticWorkers, AreOutAtOnceWhenALossMakesAWorldWithoutThem) {
  environment_ = {{"UNTIL", "2"}};
  start_world(3, "train");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  worker(2).signal(SIGKILL);
  publish(world_of(2, {0}));
  const auto ended = wait_all();
  expect_all_done(ended, {0});
  EXPECT_EQ(ended[1].code, 0) << ended[1].err;
}

TEST_F(ElasticWorkers, FormTheNextWorldWhenAMemberDiesBeforeItHasJoined) {
  start_in(world_of(1, {0, 1, 2}), "train");
  start_in(world_of(1, {0, 1, 2}), "train");
  ASSERT_TRUE(hears(0, Kind::initialised));
  ASSERT_TRUE(hears(1, Kind::initialised));
  publish(world_of(2, {0, 1}));
  expect_all_done(wait_all(), {0, 1});
}

// A member dies while the world changes: one more generation.
class InEachPlace : public ElasticWorkers, public ::testing::WithParamInterface<const char*> {};

TEST_P(InEachPlace, AFailureWhileTheWorldChangesIsOneMoreGeneration) {
  const std::string place = GetParam();
  const bool of_joiner = place == "joining" || place == "load";
  environment_ = {{"UNTIL", "3"}};
  start_in(world_of(1, {0, 1}), "train");
  if (!of_joiner) environment_["DIE"] = place;
  start_in(world_of(1, {0, 1}), "train");
  environment_.erase("DIE");
  const bool changes = place != "save";
  if (changes) {
    ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
    if (of_joiner) environment_["DIE"] = place;
    start_in(world_of(1, {0, 1}), "train");
    if (place == "joining") {
      publish(world_of(2, {0, 1, 2}));  // as if the driver believed that it was there
    } else {
      ASSERT_TRUE(hears(2, Kind::ready));
      change_to(2, {0, 1, 2}, {0, 1});
    }
  }
  const std::size_t dead = of_joiner ? 2 : 1;
  ASSERT_TRUE(worker(dead).wait_for_output("dies at"));
  EXPECT_EQ(worker(dead).wait().signal, SIGKILL);
  std::vector<int> members{0};
  if (changes) members.push_back(of_joiner ? 1 : 2);
  publish(world_of(3, members));
  const auto ended = wait_all();
  expect_all_done(ended, {members.begin(), members.end()});
  EXPECT_GE(step_at_entry(ended[0], 3), commit_before(ended[0], 3)) << ended[0].out;
}
INSTANTIATE_TEST_SUITE_P(Elastic, InEachPlace,
                         ::testing::Values("joining", "load", "reset", "save"),
                         [](const auto& place) { return std::string(place.param); });

TEST_F(ElasticWorkers, RunAgainWhenOneDiesBeforeAllHaveComeToTheEnd) {
  start_in(world_of(1, {0, 1}), "train");
  environment_["DIE"] = "end";
  start_in(world_of(1, {0, 1}), "train");
  ASSERT_TRUE(worker(1).wait_for_output("dies at end"));
  EXPECT_EQ(worker(1).wait().signal, SIGKILL);
  publish(world_of(2, {0}));
  const auto ended = wait_all();
  expect_all_done(ended, {0});
  EXPECT_EQ(step_at_entry(ended[0], 2), 5) << "all that was committed is there";
  EXPECT_EQ(rest_of_words(0), (std::vector{Kind::initialised, Kind::done}));
}

TEST_F(ElasticWorkers, AreDoneWhenOneDiesAfterAllHaveComeToTheEnd) {
  start_in(world_of(1, {0, 1}), "train");
  environment_["DIE"] = "after";
  start_in(world_of(1, {0, 1}), "train");
  ASSERT_TRUE(worker(1).wait_for_output("dies at after"));
  EXPECT_EQ(worker(1).wait().signal, SIGKILL);
  // As the driver does that has not heard yet that the work is done.
  publish(world_of(2, {0}));
  const auto ended = wait_all();
  expect_all_done(ended, {0});
  EXPECT_EQ(step_at_entry(ended[0], 2), -1) << "no rank runs again";
  EXPECT_EQ(rest_of_words(0), (std::vector{Kind::initialised, Kind::done}));
}

TEST_F(ElasticWorkers, DoNotBeginTheWorkAgainThatTheOthersHaveDone) {
  start_world(2, "train");
  for (const std::size_t i : {0U, 1U}) ASSERT_TRUE(hears(i, Kind::done));
  // As the driver does after a loss at the end: newcomers are alone in the next world.
  start_in(world_of(2, {2, 3}), "train");
  start_in(world_of(2, {2, 3}), "left");
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1});
  for (const std::size_t i : {2U, 3U}) {
    EXPECT_EQ(ended[i].code, 0) << ended[i].err;
    EXPECT_EQ(step_at_entry(ended[i], 2), -1) << ended[i].out;
    EXPECT_EQ(ended[i].out.find("done"), std::string::npos) << ended[i].out;
    EXPECT_EQ(rest_of_words(i), (std::vector{Kind::initialised, Kind::left}));
  }
  EXPECT_NE(ended[3].out.find("left\n"), std::string::npos) << ended[3].out;
}

class WithAllHoldersLost : public ElasticWorkers {
 protected:
  std::vector<ExitStatus> lose_all_holders(const std::string& scenario) {
    environment_ = {{"UNTIL", "2"}};
    start_world(2, scenario);
    EXPECT_TRUE(worker(0).wait_for_output("commit 3\n"));
    start_in(world_of(1, {0, 1}), scenario);
    start_in(world_of(1, {0, 1}), scenario);
    EXPECT_TRUE(hears(2, Kind::ready));
    EXPECT_TRUE(hears(3, Kind::ready));
    worker(0).signal(SIGKILL);
    worker(1).signal(SIGKILL);
    publish(world_of(2, {2, 3}));
    return wait_all();
  }
};

TEST_F(WithAllHoldersLost, JoinersSayThatCommittedStateIsLost) {
  const auto ended = lose_all_holders("train");
  for (const std::size_t i : {2U, 3U}) {
    EXPECT_EQ(ended[i].code, 1);
    EXPECT_NE(ended[i].err.find("CommittedStateLostError: committed state lost: commit 1."),
              std::string::npos)
        << ended[i].err;
  }
}

TEST_F(WithAllHoldersLost, JoinersGoOnFromTheLoader) {
  const auto ended = lose_all_holders("load");
  expect_all_done(ended, {2, 3});
  EXPECT_NE(ended[2].out.find("loads\n"), std::string::npos);
  EXPECT_EQ(ended[3].out.find("loads\n"), std::string::npos);
  EXPECT_EQ(step_at_entry(ended[3], 2), 1000);
}

class ElasticWorkersThatGiveUp : public ElasticWorkers,
                                 public ::testing::WithParamInterface<const char*> {};

TEST_P(ElasticWorkersThatGiveUp, GoBackToTheLastCommitTogether) {
  environment_ = {{"FAILS", "1"}, {"ON", GetParam()}};
  start_world(3, "gives-up");
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  for (const auto& status : ended) {
    EXPECT_NE(status.out.find("step 3, resets 1\n"), std::string::npos) << status.out;
    EXPECT_NE(status.out.find("after 2 entries"), std::string::npos) << status.out << status.err;
  }
}
INSTANTIATE_TEST_SUITE_P(Elastic, ElasticWorkersThatGiveUp, ::testing::Values("", "0", "1"),
                         [](const auto& rank) {
                           return *rank.param == '\0' ? std::string("all")
                                                      : cat("rank", rank.param);
                         });

TEST_F(ElasticWorkers, EndIfTheyGiveUpAgainAndAgainWithoutACommit) {
  environment_ = {{"FAILS", "5"}, {"ON", "1"}};
  start_world(3, "gives-up");
  EXPECT_EQ(worker(1).wait().code, 1);
  publish(world_of(2, {0, 2}));
  const auto ended = wait_all();
  expect_all_done(ended, {0, 2});
  EXPECT_NE(ended[1].err.find("not a number"), std::string::npos) << ended[1].err;
  EXPECT_EQ(step_at_entry(ended[0], 2), 3);
}

constexpr const char* kWhereCollectivesBelong =
    "hvd::allreduce(): this worker has come to a job that is under way, whose other workers do not "
    "make this call now. Collectives belong in the function that elastic::run() calls";

TEST_F(ElasticWorkers, RefuseACollectiveBeforeTheRunOfANewcomerThatTheOthersNeverMake) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "early");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  worker(1).signal(SIGKILL);
  start_in(world_of(1, {0, 1}), "early");
  const ExitStatus newcomer = worker(2).wait();
  EXPECT_EQ(newcomer.code, 1);
  EXPECT_NE(newcomer.err.find(kWhereCollectivesBelong), std::string::npos) << newcomer.err;
  EXPECT_EQ(rest_of_words(2), std::vector{Kind::initialised}) << "it was never ready";
  publish(world_of(2, {0}));
  expect_all_done(wait_all(), {0});
}

TEST_F(ElasticWorkers, AnswerANewcomerThatAddsAProcessSetBeforeTheRun) {
  environment_ = {{"UNTIL", "3"}, {"SET", "1"}};
  start_world(2, "early");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  worker(1).signal(SIGKILL);
  start_in(world_of(1, {0, 1}), "early");
  ASSERT_TRUE(hears(2, Kind::ready));
  publish(world_of(2, {0, 2}));
  const ExitStatus newcomer = worker(2).wait();
  EXPECT_EQ(newcomer.out, "set 1\n") << newcomer.err;
  EXPECT_NE(newcomer.err.find(kWhereCollectivesBelong), std::string::npos) << newcomer.err;
  publish(world_of(3, {0}));
  expect_all_done(wait_all(), {0});
}

TEST_F(ElasticWorkers, FormTheSameWorldAgainWhenOnlyAConnectionWasLost) {
  start_world(3, "cut");
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  for (const auto& status : ended) {
    EXPECT_NE(status.out.find("after 2 entries"), std::string::npos) << status.out << status.err;
  }
  EXPECT_NE(ended[0].err.find(kNoOtherWorld), std::string::npos) << ended[0].err;
}

// As for a survivor whose job waits for a replacement.
TEST_F(ElasticWorkers, DoNotSayThatNobodyWasLostWhenTheNextWorldIsLate) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "train");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  worker(1).signal(SIGKILL);
  ASSERT_TRUE(worker(0).wait_for_error(kNoOtherWorld));
  publish(world_of(2, {0}));
  const auto ended = wait_all();
  expect_all_done(ended, {0});
}

}  // namespace
}  // namespace hvd::test
