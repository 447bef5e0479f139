// Real elastic workers against a real rendezvous server. The test plays their agents and the
// driver: it says which worlds there are.
#include "tests/worker/workers.h"

#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <regex>
#include <string>
#include <vector>

#include "base/protocol/worker_link.h"
#include "base/text.h"
#include "tests/runtime/trace_check.h"

namespace hvd {
namespace {

using test::ExitStatus;
using test::kGenerous;
using worker_link::Kind;

class ElasticWorkers : public test::Workers {
 protected:
  ElasticWorkers() { program_ = "hvd_elastic_program"; }

  // Worker i is on host a in slot i, with incarnation 100 + i, wherever it stands in the world.
  static WorldDocument world_of(std::uint64_t generation, const std::vector<int>& workers,
                                WorldState state = WorldState::effective) {
    WorldDocument document;
    document.job_id = "job";
    document.generation = generation;
    document.state = state;
    const int size = static_cast<int>(workers.size());
    for (int rank = 0; rank < size; ++rank) {
      const int worker = workers[static_cast<std::size_t>(rank)];
      document.members.push_back({rank, "a", worker, 100U + static_cast<std::uint64_t>(worker),
                                  "127.0.0.1", rank, size, 0, 1});
    }
    return document;
  }

  // The next worker, in this world or to join it later.
  void start_in(const WorldDocument& world, const std::string& scenario) {
    const auto self = world_of(1, {static_cast<int>(processes_.size())}).members.front();
    auto welcome = welcome_of(self, world.to_json());
    welcome.elastic = true;
    start(welcome.encode(), scenario);
    decoders_.emplace_back();
  }
  void start_world(int size, const std::string& scenario) {
    std::vector<int> workers;
    for (int i = 0; i < size; ++i) workers.push_back(i);
    for (int i = 0; i < size; ++i) start_in(world_of(1, workers), scenario);
  }

  void publish(const WorldDocument& document) {
    const auto frame =
        worker_link::World{document.generation, document.state == WorldState::effective,
                           document.to_json()}
            .encode();
    for (const auto& link : links_) (void)send_all(link.get(), frame, Clock::now() + kGenerous);
  }

  // The next thing that a worker tells its agent.
  std::optional<Kind> next_word(std::size_t worker) {
    auto frame = receive_frame(links_[worker].get(), decoders_[worker], Clock::now() + kGenerous);
    if (!frame.ok()) return std::nullopt;
    return static_cast<Kind>(frame->kind);
  }
  bool hears(std::size_t worker, Kind kind) {
    for (;;) {
      const auto word = next_word(worker);
      if (!word) return false;
      if (*word == kind) return true;
    }
  }
  std::vector<Kind> rest_of_words(std::size_t worker) {
    std::vector<Kind> words;
    while (const auto word = next_word(worker)) words.push_back(*word);
    return words;
  }
  test::Process& worker(std::size_t index) { return *processes_[index]; }

  // A world is proposed, and the test waits until the workers have gone over to it at a commit.
  void change_to(std::uint64_t generation, const std::vector<int>& members,
                 const std::vector<std::size_t>& deciding) {
    publish(world_of(generation, members, WorldState::proposed));
    for (const auto index : deciding) EXPECT_TRUE(hears(index, Kind::committed)) << index;
    publish(world_of(generation, members));
  }

  // The step at which a worker's function was called in this generation; -1: it was not.
  static int step_at_entry(const ExitStatus& status, int generation) {
    std::smatch match;
    const std::regex line(cat("generation ", generation, ", rank \\d+ of \\d+, step (\\d+)"));
    return std::regex_search(status.out, match, line) ? std::stoi(match[1]) : -1;
  }
  // The newest commit that it saw before its function was called in this generation.
  static int commit_before(const ExitStatus& status, int generation) {
    const auto end = status.out.find(cat("generation ", generation, ","));
    const auto at = status.out.rfind("commit ", end);
    return at == std::string::npos ? -1 : std::stoi(status.out.substr(at + 7));
  }

  void expect_all_done(const std::vector<ExitStatus>& ended, const std::vector<std::size_t>& who) {
    std::string last;
    for (const auto index : who) {
      EXPECT_EQ(ended[index].code, 0) << index << ": " << ended[index].out << ended[index].err;
      const auto at = ended[index].out.find("done at step");
      ASSERT_NE(at, std::string::npos) << index << ": " << ended[index].out << ended[index].err;
      const auto line = ended[index].out.substr(at);
      EXPECT_EQ(line, last.empty() ? line : last);
      last = line;
    }
  }

  std::vector<FrameDecoder> decoders_;
};

TEST_F(ElasticWorkers, TrainToTheEndIfNothingHappens) {
  start_world(3, "train");
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rest_of_words(i), (std::vector{Kind::initialised, Kind::done}));
    EXPECT_EQ(ended[i].err, "");
  }
}

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

TEST_F(ElasticWorkers, JoinAlsoIfWhatIsInTheStateHasNoSizeYet) {
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

TEST_F(ElasticWorkers, ThatAreRemovedEndWithZeroAndDoNotSayThatTheyAreDone) {
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

TEST_F(ElasticWorkers, ThatAreToldToGoSayThatTheyLeaveAndDoSoAtACommit) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "train");
  ASSERT_TRUE(worker(0).wait_for_output("commit 3\n"));
  worker(1).signal(SIGTERM);
  ASSERT_TRUE(hears(1, Kind::leave));
  worker(1).signal(SIGTERM);  // once more, by somebody else
  change_to(2, {0}, {0, 1});
  const auto ended = wait_all();
  expect_all_done(ended, {0});
  EXPECT_EQ(ended[1].code, 0) << ended[1].err;
  EXPECT_EQ(step_at_entry(ended[0], 2), commit_before(ended[0], 2) + 1) << "nobody has rolled back";
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

TEST_F(ElasticWorkers, ThatOnlyLookCommitWhereTheWorldChanges) {
  environment_ = {{"UNTIL", "2"}};
  start_world(2, "look");
  ASSERT_TRUE(worker(0).wait_for_output("step 3\n"));
  start_in(world_of(1, {0, 1}), "look");
  ASSERT_TRUE(hears(2, Kind::ready));
  change_to(2, {0, 1, 2}, {0, 1});
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  EXPECT_GT(step_at_entry(ended[2], 2), 3) << "nobody has rolled back";
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
  EXPECT_EQ(step_at_entry(ended[0], 2), -1) << "nobody runs again";
  EXPECT_EQ(rest_of_words(0), (std::vector{Kind::initialised, Kind::done}));
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

TEST_F(ElasticWorkers, FormTheSameWorldAgainWhenOnlyAConnectionWasLost) {
  start_world(3, "cut");
  const auto ended = wait_all();
  expect_all_done(ended, {0, 1, 2});
  for (const auto& status : ended) {
    EXPECT_NE(status.out.find("after 2 entries"), std::string::npos) << status.out << status.err;
  }
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
    // The one of worker 3 alone was made in the first world; it is not the last rank now.
    EXPECT_NE(second.find(cat("added: set 5 of size 1, sum 1")), std::string::npos) << second;
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
}

TEST_F(ElasticWorkers, AreToldWhileTheyWaitInAJoinAndJoinAnewInTheNextWorld) {
  start_world(3, "join");
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(worker(i).wait_for_output("in the midst\n"));
  worker(1).signal(SIGKILL);
  publish(world_of(2, {0, 2}));
  const auto ended = wait_all();
  expect_all_done(ended, {0, 2});
  EXPECT_NE(ended[0].out.find("alone: 1\n"), std::string::npos) << ended[0].out;
}

TEST_F(ElasticWorkers, HaveATimelineATunerAndARecorderInEachWorld) {
  const test::TemporaryDirectory directory;
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
    const auto timeline = test::expect_right_timeline(file(name));
    EXPECT_GT(timeline.count(0, "ALLREDUCE"), 0) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "tuning.csv"));
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "flight/flight-recorder.rank-0.1.json"));
}

TEST_F(ElasticWorkers, LetTheProgramsOwnErrorsThrough) {
  start_world(1, "user-error");
  const auto ended = wait_all();
  EXPECT_EQ(ended[0].code, 1);
  EXPECT_EQ(ended[0].err, "the program's own error\n");
}

TEST(ElasticAlone, AProgramRunsByItself) {
  test::ProcessOptions options;
  options.environment[worker_link::kDescriptorVariable] = "";
  const auto status = test::run({test::binary("hvd_elastic_program"), "train"}, options);
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_NE(status.out.find("done at step 5\n"), std::string::npos) << status.out;
}

}  // namespace
}  // namespace hvd
