// Elastic workers in a world that changes at a commit, or not at all.
#include <csignal>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/protocol/worker_link.h"
#include "base/socket.h"
#include "tests/support/process.h"
#include "tests/worker/elastic/elastic_workers.h"

namespace hvd::test {
namespace {

TEST_F(ElasticWorkers, TrainToTheEndIfNothingHappens) {
  start_world(3, "train");
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rest_of_words(i), (std::vector{Kind::initialised, Kind::done}));
    EXPECT_EQ(ended[i].err, "");
  }
}

TEST_F(ElasticWorkers, TakeAJoinerInAtACommitAndLoseNoStep) {
  environment_ = {{"UNTIL", "2"}, {"SIZE", "1000000"}};
  start_world(2, "train");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  start_in(world_of(1, {0, 1}), "train");
  ASSERT_TRUE(hears(2, Kind::ready));
  EXPECT_TRUE(worker(2).wait_for_output("measured\n")) << "there is room before the others wait";
  change_to(2, {0, 1, 2}, {0, 1});
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_EQ(step_at_entry(ended[i], 2), commit_before(ended[i], 2) + 1)
        << "the commit of the change is the next one: " << ended[i].out;
    EXPECT_EQ(ended[i].err, "");
  }
  EXPECT_EQ(step_at_entry(ended[2], 2), step_at_entry(ended[0], 2));
  EXPECT_EQ(ended[2].out.find("resets 1"), std::string::npos) << "it was in no world before";
}

TEST_F(ElasticWorkers, ThatComeToALaterRunReturnFromTheEarlierOnesAtOnce) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "twice");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));  // of the second run
  start_in(world_of(1, {0, 1}), "twice");
  ASSERT_TRUE(hears(2, Kind::ready));
  change_to(2, {0, 1, 2}, {0, 1});
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  EXPECT_NE(ended[0].out.find("first run: 1 entries, step 5\n"), std::string::npos);
  EXPECT_NE(ended[2].out.find("first run: 0 entries, step 0\n"), std::string::npos) << ended[2].out;
  EXPECT_EQ(step_at_entry(ended[2], 2), step_at_entry(ended[0], 2));
}

// As with running statistics of batch normalisation, or a list that each rank keeps for itself.
class ElasticWorkersWithStatesThatDiffer : public ElasticWorkers,
                                           public ::testing::WithParamInterface<const char*> {
 protected:
  // The content that the worker itself, or the first holder, had put into the state.
  static std::string own_at_entry(const ExitStatus& status, int generation) {
    const auto entered = status.out.find(cat("generation ", generation, ","));
    const auto at = status.out.find("own ", entered);
    return status.out.substr(at, status.out.find('\n', at) - at);
  }
};

TEST_P(ElasticWorkersWithStatesThatDiffer, TakeInAJoinerThatGetsTheStateOfTheFirst) {
  environment_ = {{"UNTIL", "2"}, {"OWN", GetParam()}};
  start_world(3, "train");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  start_in(world_of(1, {0, 1, 2}), "train");
  ASSERT_TRUE(hears(3, Kind::ready));
  change_to(2, {0, 1, 2, 3}, {0, 1, 2});
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2, 3});
  EXPECT_EQ(own_at_entry(ended[3], 2), own_at_entry(ended[0], 2));
  EXPECT_NE(own_at_entry(ended[1], 2), own_at_entry(ended[0], 2));
}
INSTANTIATE_TEST_SUITE_P(Elastic, ElasticWorkersWithStatesThatDiffer,
                         ::testing::Values("bytes", "lengths"),
                         [](const auto& what) { return std::string(what.param); });

TEST_F(ElasticWorkers, JoinAlsoIfTheStateHasNoSizeYet) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "train");
  environment_["MEASURE"] = "refuse";
  start_in(world_of(1, {0, 1}), "train");
  ASSERT_TRUE(hears(2, Kind::ready));
  change_to(2, {0, 1, 2}, {0, 1});
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  EXPECT_NE(ended[2].out.find("measured\n"), std::string::npos);
}

TEST_F(ElasticWorkers, EndWithZeroWhenTheyAreRemovedAndDoNotSayThatTheyAreDone) {
  environment_ = {{"UNTIL", "2"}};
  for (const auto* const scenario : {"train", "train", "left"}) {
    start_in(world_of(1, {0, 1, 2}), scenario);
  }
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  change_to(2, {0}, {0, 1, 2});
  const auto ended = wait_all();
  expect_all_done(ended, {0});
  for (const std::size_t i : {1U, 2U}) {
    EXPECT_EQ(ended[i].code, 0) << ended[i].err;
    EXPECT_EQ(ended[i].out.find("done"), std::string::npos) << ended[i].out;
    for (const auto word : rest_of_words(i)) EXPECT_NE(word, Kind::done);
  }
  EXPECT_NE(ended[2].out.find("left\n"), std::string::npos) << ended[2].out;
}

TEST_F(ElasticWorkers, AnnounceThatTheyLeaveWhenToldToGoAndLeaveAtACommit) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "train");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  worker(1).signal(SIGTERM);
  ASSERT_TRUE(hears(1, Kind::leave));
  worker(1).signal(SIGTERM);  // once more, from elsewhere
  change_to(2, {0}, {0, 1});
  const auto ended = wait_all();
  expect_all_done(ended, {0});
  EXPECT_EQ(ended[1].code, 0) << ended[1].err;
  EXPECT_EQ(step_at_entry(ended[0], 2), commit_before(ended[0], 2) + 1)
      << "no rank has rolled back";
}

TEST_F(ElasticWorkers, EndBySigtermWhenTheJobIsBeingStopped) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "train");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(send_all(links_[i].get(), worker_link::Stop{"Ctrl-C"}.encode(), kNever).ok());
    worker(i).signal(SIGTERM);
  }
  for (const auto& status : wait_all()) EXPECT_EQ(status.signal, SIGTERM) << status.err;
}

TEST_F(ElasticWorkers, CommitWhereTheWorldChangesIfTheyOnlyCheck) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "look");
  ASSERT_TRUE(worker(0).wait_for_output("step 3\n"));
  start_in(world_of(1, {0, 1}), "look");
  ASSERT_TRUE(hears(2, Kind::ready));
  change_to(2, {0, 1, 2}, {0, 1});
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  EXPECT_GT(step_at_entry(ended[2], 2), 3) << "no rank has rolled back";
}

TEST_F(ElasticWorkers, LetTheProgramsOwnErrorsThrough) {
  start_world(1, "user-error");
  const auto ended = wait_all();
  EXPECT_EQ(ended[0].code, 1);
  EXPECT_EQ(ended[0].err, "the program's own error\n");
}

TEST(ElasticAlone, AProgramRunsByItself) {
  ProcessOptions options;
  options.environment[worker_link::kDescriptorVariable] = "";
  const auto status = run({binary("hvd_elastic_program"), "train"}, options);
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_NE(status.out.find("done at step 5\n"), std::string::npos) << status.out;
}

}  // namespace
}  // namespace hvd::test
