// What stands in the ledger when leaders are lost between a commit and its line, or come late.
#include "worker/process/ledger.h"

#include <filesystem>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/support/process.h"
#include "tests/support/texts.h"
#include "tests/worker/elastic/progress_worlds.h"

namespace hvd::worker {
namespace {

using Json = nlohmann::json;
using test::read_file;

// The SHA-256 of "abc" (FIPS 180-4).
constexpr const char* kDigestOfAbc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

LedgerStep step_of(std::uint64_t number) { return {number, {{"w", "00"}}, {}}; }

class LedgerFileTest : public ::testing::Test {
 protected:
  std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> steps;
    for (const auto& line : split(read_file(file_), '\n')) {
      if (!line.empty()) steps.push_back(Json::parse(line).at("step").get<std::uint64_t>());
    }
    return steps;
  }
  using Steps = std::vector<std::uint64_t>;

  test::TemporaryDirectory directory_;
  const std::string file_ = (directory_.path() / "ledger").string();
};

TEST_F(LedgerFileTest, NamesTensorsAndSamplesInJson) {
  const LedgerStep step{7, {{"b\"\n", "01"}, {"a", "02"}}, {{0, {1, -2}}, {11, {}}}};
  EXPECT_EQ(step.line(),
            "{\"step\":7,\"digests\":{\"b\\\"\\u000a\":\"01\",\"a\":\"02\"},"
            "\"samples\":{\"0\":[1,-2],\"11\":[]}}\n");
  EXPECT_EQ(step_of(1).line(), "{\"step\":1,\"digests\":{\"w\":\"00\"}}\n");
}

TEST_F(LedgerFileTest, HasAStepOnceWhoeverWritesItAndWhenever) {
  Ledger early(file_);
  Ledger late(file_);
  ASSERT_TRUE(early.begin().ok());
  EXPECT_TRUE(early.write(step_of(1)).ok());
  EXPECT_EQ(*late.last_step(), 1U);
  EXPECT_TRUE(late.write(step_of(2)).ok());
  EXPECT_TRUE(late.write(step_of(3)).ok());
  EXPECT_TRUE(early.write(step_of(2)).ok()) << "a leader that was stopped for long";
  EXPECT_TRUE(early.write(step_of(4)).ok());
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4}));
}

TEST_F(LedgerFileTest, HasAStepOnceIfManyWriteAtTheSameTime) {
  constexpr int kWriters = 4;
  constexpr std::uint64_t kLast = 200;
  ASSERT_TRUE(Ledger(file_).begin().ok());
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([this] {
      Ledger ledger(file_);
      for (std::uint64_t step = 1; step <= kLast; ++step) {
        EXPECT_TRUE(ledger.write(step_of(step)).ok());
      }
    });
  }
  for (auto& writer : writers) writer.join();
  const auto written = steps();
  for (std::size_t i = 1; i < written.size(); ++i) EXPECT_LT(written[i - 1], written[i]);
  EXPECT_EQ(written.back(), kLast);
}

TEST_F(LedgerFileTest, LosesALineThatIsCutOffAndFindsTheLastOneInFilesOfAnySize) {
  // Lines longer than what is read at a time, and shorter ones.
  for (const std::size_t samples : {std::size_t{0}, std::size_t{10}, std::size_t{2'000}}) {
    std::string text;
    for (std::uint64_t step = 1; step <= 3; ++step) {
      auto one = step_of(step);
      if (samples > 0) one.samples[0].assign(samples, 1'234'567);
      text += one.line();
    }
    std::filesystem::remove(file_);
    directory_.file("ledger", text + "{\"step\":4,\"dig");
    Ledger ledger(file_);
    EXPECT_EQ(*ledger.last_step(), 3U);
    EXPECT_EQ(read_file(file_), text);
    EXPECT_TRUE(ledger.write(step_of(4)).ok());
    EXPECT_EQ(steps(), (Steps{1, 2, 3, 4}));
  }
  directory_.file("ledger", "{\"step\":1,\"dig");
  EXPECT_EQ(*Ledger(file_).last_step(), 0U);
  EXPECT_EQ(read_file(file_), "");
}

TEST_F(LedgerFileTest, GoesBackToAStepAndLosesTheLinesOfLaterOnes) {
  for (const std::size_t samples : {std::size_t{0}, std::size_t{2'000}}) {
    std::filesystem::remove(file_);
    Ledger ledger(file_);
    for (const std::uint64_t number : {1U, 2U, 3U, 6U, 7U}) {
      auto one = step_of(number);
      if (samples > 0) one.samples[0].assign(samples, 1'234'567);
      ASSERT_TRUE(ledger.write(one).ok());
    }
    EXPECT_EQ(*ledger.go_back_to(9), 7U);
    EXPECT_EQ(*ledger.go_back_to(6), 6U);
    EXPECT_EQ(*ledger.go_back_to(5), 3U);
    EXPECT_TRUE(ledger.write(step_of(4)).ok());
    EXPECT_EQ(steps(), (Steps{1, 2, 3, 4}));
    EXPECT_EQ(*Ledger(file_).go_back_to(0), 0U);
    EXPECT_EQ(read_file(file_), "");
  }
}

TEST_F(LedgerFileTest, IsNoOtherFile) {
  for (const char* const text : {"abc\n", "abc", "\n", "{\"step\":x,\"digests\":{}}\n"}) {
    directory_.file("ledger", text);
    Ledger ledger(file_);
    EXPECT_EQ(ledger.begin().code(), Code::data_loss);
    EXPECT_EQ(ledger.last_step().status().code(), Code::data_loss);
    EXPECT_EQ(ledger.go_back_to(0).status().code(), Code::data_loss);
    EXPECT_EQ(ledger.write(step_of(1)).code(), Code::data_loss);
    EXPECT_EQ(read_file(file_), text);
  }
}

TEST_F(LedgerFileTest, WaitsForSamplesOfAllSteps) {
  Ledger ledger(file_);
  ledger.add_samples({{0, {1}}, {1, {2}}});
  ledger.add_samples({{1, {3}}});
  EXPECT_EQ(ledger.take_samples(), (ShardSamples{{0, {1}}, {1, {2, 3}}}));
  EXPECT_EQ(ledger.take_samples(), ShardSamples{});
}

class LedgerInWorlds : public ElasticProgress, public ::testing::WithParamInterface<CommitMode> {
 protected:
  void SetUp() override {
    ledger_file_ = (directory_.path() / "ledger").string();
    options_.mode = GetParam();
  }
  std::vector<Json> lines() const {
    std::vector<Json> lines;
    for (const auto& line : split(read_file(ledger_file_), '\n')) {
      if (!line.empty()) lines.push_back(Json::parse(line));
    }
    return lines;
  }
  // A step of the program: its samples come with its gradients.
  static void step(Worker& worker, const std::string& weights, std::int64_t sample) {
    worker.ledger.add_samples({{0, {sample}}});
    worker.progress.mutate([&] { worker.weights = weights; });
  }
  static void step_and_commit(Worker& worker, CommitProtocol& protocol, const std::string& weights,
                              std::int64_t sample) {
    step(worker, weights, sample);
    const auto committed = commit(worker, protocol);
    EXPECT_TRUE(committed.ok()) << committed.status.to_string();
  }
  // The steps of the lines from 1 on, each with this sample.
  void expect_samples(const std::vector<std::int64_t>& samples) const {
    const auto found = lines();
    ASSERT_EQ(found.size(), samples.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].at("step"), i + 1);
      EXPECT_EQ(found[i].at("samples").at("0"), Json::array({samples[i]})) << "step " << i + 1;
    }
  }

  test::TemporaryDirectory directory_;
  StateOptions options_;
};

TEST_P(LedgerInWorlds, HasALineForEachCommitWithTheDigestOfEachPart) {
  add(2, options_);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    step_and_commit(worker, protocol, "abc", 5);
    step_and_commit(worker, protocol, "abd", 6);
  });
  expect_samples({5, 6});
  EXPECT_EQ(lines()[0].at("digests").at("weights"), kDigestOfAbc);
  EXPECT_NE(lines()[1].at("digests").at("weights"), kDigestOfAbc);
  EXPECT_EQ(lines()[1].at("digests").at("step"), lines()[0].at("digests").at("step"));
}

TEST_P(LedgerInWorlds, CountsOnInTheNextWorldWithoutWhatWasNotCommitted) {
  add(2, options_);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    step_and_commit(worker, protocol, "a", 1);
    step_and_commit(worker, protocol, "b", 2);
    worker.ledger.add_samples({{0, {77}}});  // the world fails before the step ends
  });
  // Another leader, and a newcomer.
  Worker& joiner = add("", options_);
  generation({&joiner, workers_[1].get()}, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    step_and_commit(worker, protocol, "c", 3);
  });
  number_ = 1;  // the same generation again: a connection broke
  generation({&joiner, workers_[1].get()}, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    step_and_commit(worker, protocol, "d", 4);
  });
  expect_samples({1, 2, 3, 4});
}

// The leader dies when the mark is written, or before that, and others hold the state.
TEST_P(LedgerInWorlds, ALineThatTheLeaderDidNotWriteIsThatOfTheNextWorld) {
  add(2, options_);
  generation(all(), [this](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    step_and_commit(worker, protocol, "a", 1);
    (void)protocol.channel().barrier("both have committed");
    if (rank == 0) mark_.refuse({Code::unavailable, "it is lost"});
    (void)protocol.channel().barrier("no mark is written any more");
    step(worker, "abc", 2);
    EXPECT_FALSE(commit(worker, protocol).ok());
  });
  mark_.refuse({});
  EXPECT_EQ(lines().size(), 1U);

  Worker& joiner = add("", options_);
  generation({&joiner, workers_[1].get()}, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_EQ(worker.weights, "abc");
    step_and_commit(worker, protocol, "c", 3);
  });
  expect_samples({1, 2, 3});
  EXPECT_EQ(lines()[1].at("digests").at("weights"), kDigestOfAbc);
}

TEST_P(LedgerInWorlds, BeginsAnewWithANewJobAndGoesOnInTheProgramsNextRun) {
  directory_.file("ledger", step_of(17).line());
  add(2, options_);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    step_and_commit(worker, protocol, "a", 1);
    EXPECT_TRUE(worker.progress.finish(protocol).ok());
    ++worker.run;
  });
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    step_and_commit(worker, protocol, "b", 2);
  });
  expect_samples({1, 2});
}

// The file has the state of step 2, and the ledger what came after it.
TEST_P(LedgerInWorlds, GoesBackWithAJobThatIsTakenUpFromAnOlderState) {
  state_file_.name = (directory_.path() / "state").string();
  for (const bool is_cut : {false, true}) {
    std::filesystem::remove(state_file_.name);
    workers_.clear();
    number_ = 0;
    EXPECT_TRUE(mark_.write({}).ok());
    add(2, options_);
    generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
      begin(worker, protocol);
      step_and_commit(worker, protocol, "a", 1);
      step_and_commit(worker, protocol, "b", 2);
      SaveMeter meter;
      EXPECT_TRUE(worker.progress.suspend(protocol, meter, [](const Status&) {}).ok());
      step_and_commit(worker, protocol, "c", 33);
      step_and_commit(worker, protocol, "d", 44);
    });
    EXPECT_EQ(lines().size(), 4U);
    // As after a crash of the machine, which has lost the end of the ledger.
    if (is_cut) directory_.file("ledger", step_of(1).line());

    workers_.clear();
    number_ = 0;
    EXPECT_TRUE(mark_.write({}).ok());
    add(2, options_);
    generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
      begin(worker, protocol);
      EXPECT_EQ(worker.weights, "b");
      step_and_commit(worker, protocol, "c", 3);
    });
    // Another leader counts on in the same way.
    generation({workers_[1].get()}, [](int, Worker& worker, CommitProtocol& protocol) {
      begin(worker, protocol);
      step_and_commit(worker, protocol, "d", 4);
    });
    if (!is_cut) {
      expect_samples({1, 2, 3, 4});
      continue;
    }
    std::vector<std::uint64_t> steps;
    for (const auto& line : lines()) steps.push_back(line.at("step").get<std::uint64_t>());
    EXPECT_EQ(steps, (std::vector<std::uint64_t>{1, 3, 4})) << "2 is missing, not given again";
  }
}

TEST_P(LedgerInWorlds, ThatCannotBeWrittenIsAnErrorOnAllRanksWhenTheJobBegins) {
  ledger_file_ = (directory_.path() / "no" / "ledger").string();
  add(2, options_);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    const auto begun = worker.progress.begin(protocol, false);
    EXPECT_FALSE(begun.ok());
    EXPECT_TRUE(mentions(begun, "rank 0 could not open ledger")) << begun.status.message();
  });
}

// A full disk is no reason to lose the work.
TEST_P(LedgerInWorlds, ThatIsLostLaterEndsNoTraining) {
  add(1, options_);
  generation(all(), [this](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    step_and_commit(worker, protocol, "a", 1);
    directory_.file("ledger", "of somebody else\n");
    step_and_commit(worker, protocol, "b", 2);
    step_and_commit(worker, protocol, "c", 3);
  });
  EXPECT_EQ(read_file(ledger_file_), "of somebody else\n");
}

INSTANTIATE_TEST_SUITE_P(Modes, LedgerInWorlds,
                         ::testing::Values(CommitMode::copy, CommitMode::mark),
                         [](const auto& info) {
                           return info.param == CommitMode::copy ? "Copy" : "Mark";
                         });

}  // namespace
}  // namespace hvd::worker
