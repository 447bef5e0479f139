// The main job: a real model on a real text, with as many workers as are asked for, on whatever
// hosts.
#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/e2e/job_test.h"
#include "tests/e2e/step_logs.h"

namespace hvd::test {
namespace {

class TrainingTest : public JobTest {
 protected:
  Words training(const Words& flags) const {
    Words words = flags;
    for (const char* const word : {binary_train_.c_str(), "--text", kText, "--steps", "12",
                                   "--log-every", "3", "--batch", "64", "--hidden", "48"}) {
      words.emplace_back(word);
    }
    return words;
  }

  ExitStatus train(const Words& flags) {
    ExitStatus end = run_job(training(flags));
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    return end;
  }

  // The text between "loss" and the speed, line by line: the speed is never the same twice.
  static Words loss_curve(const std::string& output) {
    Words losses;
    for (const auto& line : lines_of_rank(output, 0)) {
      if (line.starts_with("step")) losses.push_back(line.substr(0, line.find("  ", 12)));
    }
    return losses;
  }

  static double loss_of(const std::string& line) {
    return std::stod(line.substr(line.find("loss ") + 5));
  }

  static std::string last_line(const std::string& output) {
    const auto lines = lines_of_rank(output, 0);
    return lines.empty() ? "" : lines.back();
  }

 private:
  std::string binary_train_ = binary("train");
};

TEST_F(TrainingTest, FourWorkersLearnAndEndWithIdenticalWeights) {
  const ExitStatus end = train({"-np", "4"});
  EXPECT_TRUE(last_line(end.out).starts_with("weights identical on all 4 workers")) << end.out;
  const auto curve = loss_curve(end.out);
  ASSERT_EQ(curve.size(), 5U) << end.out;
  EXPECT_LT(loss_of(curve.back()), loss_of(curve.front()) - 0.5) << end.out;
  for (int rank = 1; rank < 4; ++rank) {
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{}) << "only rank 0 speaks";
  }
}

TEST_F(TrainingTest, OneWorkerIsAWorldToo) {
  const ExitStatus end = train({"-np", "1"});
  EXPECT_TRUE(last_line(end.out).starts_with("weights identical on all 1 worker ")) << end.out;
}

TEST_F(TrainingTest, WithoutHvdrunAProgramIsAWorldOfOne) {
  const ExitStatus end = run(training({}));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("weights identical on all 1 worker "), std::string::npos) << end.out;
}

TEST_F(TrainingTest, SixteenWorkersOnEightSlotsOfTwoHosts) {
  const ExitStatus end = train({"-np", "16", "-H", "localhost:4,127.0.0.1:4"});
  EXPECT_TRUE(last_line(end.out).starts_with("weights identical on all 16 workers")) << end.out;
}

TEST_F(TrainingTest, EqualWorldSizeAndSeedGiveTheSameCurveAndWeightsOnOneHostOrTwo) {
  const ExitStatus one = train({"-np", "8", "-H", "localhost:8"});
  const ExitStatus two = train({"-np", "8", "-H", "localhost:4,127.0.0.1:4"});
  EXPECT_EQ(loss_curve(one.out), loss_curve(two.out));
  EXPECT_FALSE(loss_curve(one.out).empty());
  // The digest of all weights stands in the last line.
  EXPECT_EQ(last_line(one.out), last_line(two.out));
}

TEST_F(TrainingTest, WithShardsAWorkerMayHaveSeveralOrNone) {
  Words words = training({"-np", "3"});
  words.insert(words.end(), {"--shards", "2"});
  const ExitStatus end = run_job(words);
  EXPECT_EQ(end.code, 0) << end.err;
  // Sums are exact here: two workers without shards have the same two parts.
  EXPECT_EQ(loss_curve(end.out), loss_curve(train({"-np", "2"}).out));
  Words many = training({"-np", "2"});
  many.insert(many.end(), {"--shards", "16"});
  const ExitStatus of_many = run_job(many);
  EXPECT_EQ(of_many.code, 0) << of_many.err;
  EXPECT_FALSE(loss_curve(of_many.out).empty());
}

TEST_F(TrainingTest, WithADeterministicSumAnyNumberOfWorkersGivesTheSameBits) {
  std::set<std::string> digests;
  std::set<Words> curves;
  for (const int workers : {1, 2, 3, 5}) {
    Words words = training({"-np", std::to_string(workers)});
    words.insert(words.end(), {"--shards", "16", "--deterministic"});
    const ExitStatus end = run_job(words);
    EXPECT_EQ(end.code, 0) << end.err;
    const std::string line = last_line(end.out);
    digests.insert(line.substr(std::min(line.size(), line.find("(digest"))));
    curves.insert(loss_curve(end.out));
  }
  EXPECT_EQ(digests.size(), 1U);
  EXPECT_EQ(curves.size(), 1U);
  EXPECT_FALSE(curves.begin()->empty());
}

TEST_F(TrainingTest, AnotherSeedGivesAnotherCurve) {
  Words other = training({"-np", "2"});
  other.insert(other.end(), {"--seed", "2"});
  const ExitStatus end = run_job(other);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(loss_curve(train({"-np", "2"}).out), loss_curve(end.out));
}

TEST_F(TrainingTest, TextsThatCannotBeUsedAreErrorsThatNameThem) {
  const std::string train = binary("train");
  const std::string empty = directory_file("empty.txt");
  const std::string three = directory_file("short.txt", "abc");
  const std::string ledger = three + "/ledger";
  const std::string folder = directory();
  const struct {
    Words words;
    std::string said;
  } cases[] = {
      {{train, "--text", "/nowhere.txt"}, "/nowhere.txt: No such file or directory"},
      {{train, "--text", empty}, empty + ": there is nothing in it"},
      {{train, "--text", three}, three + ": 3 bytes in all, but --context 12 needs at least 13"},
      {{train, "--text", folder}, folder + ": holds no *.md file"},
      {{train, "--batch", "8", "--shards", "16"}, "--shards 16: a batch of 8 has fewer samples"},
      {{train, "--deterministic"}, "--deterministic needs --shards"},
      {{train, "--steps", "many"}, "--steps many: expected a whole number"},
      {{train, "--lr", "-1"}, "--lr -1: expected a number above 0"},
      {{train, "--batch"}, "--batch needs a value"},
      {{train, "--bach", "2"}, "unknown argument --bach"},
      {{train, "--text", kText, "--ledger", three}, "--ledger " + three + ": Not a directory"},
      {{train, "--text", kText, "--ledger", ledger}, "--ledger " + ledger + ": Not a directory"},
      {{train, "--text", kText, "--ledger", "/proc"}, "--ledger /proc: cannot make /proc/alone#0."},
      {{train, "--ledger"}, "--ledger needs a value"},
      {{train, "--until="}, "--until needs a value"},
      {{train, "--fail-on"}, "--fail-on needs a value"},
  };
  for (const auto& wrong : cases) {
    const ExitStatus end = run(wrong.words);
    EXPECT_EQ(end.code, 2) << wrong.said;
    EXPECT_NE(end.err.find(wrong.said), std::string::npos) << end.err;
    EXPECT_EQ(end.out, "");
  }
  const ExitStatus end = run(cases[4].words, {.environment = {}, .working_directory = folder});
  EXPECT_EQ(end.code, 2);
}

TEST_F(TrainingTest, TheLedgersTellWhichSamplesEachStepUsedAndThatAllEndedAlike) {
  StepLogs step_logs({directory() / "ledger"});
  Words words = training({"-np", "3"});
  // Of the text's samples that is an epoch and a half.
  words.insert(words.end(), {"--batch", "1700", "--context", "16", "--steps", "10", "--ledger",
                             (directory() / "ledger").string()});
  const ExitStatus end = run_job(words);
  EXPECT_EQ(end.code, 0) << end.err;
  const auto samples = static_cast<std::int64_t>(std::filesystem::file_size(kText)) - 16;
  EXPECT_EQ(step_logs.errors({.samples = samples}), "");
  const auto members = step_logs.members();
  ASSERT_EQ(members.size(), 3U) << step_logs.summary();
  for (const auto* const step_log : members) {
    EXPECT_EQ(step_log->commits.size(), 10U);
    EXPECT_EQ(step_log->draws.back().epoch, 1);
    EXPECT_NE(last_line(end.out).find("digest " + step_log->weights), std::string::npos) << end.out;
  }
}

TEST_F(TrainingTest, TheCheckerOfLedgersSeesWhatIsWrongInThem) {
  const auto ledger = directory() / "ledger";
  const auto judge = [&](const std::string& one, const std::string& other) {
    std::filesystem::create_directories(ledger);
    directory_file("ledger/one", "1 start h#0 1\n2 world 1 0 2 0 aa\n" + one);
    directory_file("ledger/other", "1 start h#1 2\n2 world 1 1 2 0 aa\n" + other);
    StepLogs step_logs({ledger});
    return step_logs.errors({.samples = 4});
  };
  EXPECT_EQ(judge("3 draw 1 1 0 0 3\n4 commit 1 1\n5 done 1 bb\n",
                  "3 draw 1 1 0 2 1\n4 commit 1 1\n5 done 1 bb\n"),
            "");
  EXPECT_NE(judge("3 draw 1 1 0 0 3\n4 commit 1 1\n5 done 1 bb\n",
                  "3 draw 1 1 0 2 0\n4 commit 1 1\n5 done 1 bb\n")
                .find("1 samples were never drawn, 1 again"),
            std::string::npos);
  EXPECT_NE(judge("3 draw 1 1 0 0 3\n4 commit 1 1\n5 done 1 bb\n",
                  "3 draw 1 1 0 2 1\n4 commit 1 1\n5 done 1 bc\n")
                .find("h#1 ended at step 1 with weights bc, rank 0 at step 1 with bb"),
            std::string::npos);
  EXPECT_NE(judge("3 world 2 0 2 1 cc\n5 done 1 bb\n", "3 world 2 1 2 1 cd\n5 done 1 bb\n")
                .find("world 2 begins with weights"),
            std::string::npos);
}

TEST_F(TrainingTest, AWorkerThatSeesTheFileOfUntilEndsTheTrainingForAll) {
  const std::string enough = (directory() / "enough").string();
  Words words = training({"-np", "2"});
  words.insert(words.end(), {"--steps", "1000000000", "--until", enough});
  Process& job = start(words);
  ASSERT_TRUE(job.wait_for_output("step     3")) << job.err();
  directory_file("enough");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_TRUE(last_line(end.out).starts_with("weights identical on all 2 workers")) << end.out;
}

TEST_F(TrainingTest, AWorkerThatIsToldToFailDoesSoAndTheOthersGoOn) {
  const std::string fail = directory_file("fail");
  Words words = training({"-np", "3", "--min-np", "2"});
  words.insert(words.end(), {"--fail-on", fail});
  const ExitStatus end = run_job(words);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find(fail + " tells this worker to fail"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("exited with code 1"), std::string::npos) << end.err;
  EXPECT_FALSE(std::filesystem::exists(fail));
  EXPECT_TRUE(last_line(end.out).starts_with("weights identical on all ")) << end.out;
}

TEST_F(TrainingTest, ABatchSmallerThanTheWorldIsAnErrorThatSaysSo) {
  Words words = training({"-np", "3"});
  words.insert(words.end(), {"--batch", "2"});
  const ExitStatus end = run_job(words);
  EXPECT_EQ(end.code, 2) << end.err;
  EXPECT_NE(end.err.find("3 workers need at least one sample each"), std::string::npos) << end.err;
}

#ifdef HVD_TRAIN_CUDA
TEST_F(TrainingTest, WithoutAGpuTheOneOnGpusSaysSoAndFails) {
  const std::string train = binary("train_cuda");
  EXPECT_EQ(run({train, "--bach", "2"}).code, 2);
  // Without a driver, or with one that this process sees no GPU of.
  ProcessOptions hidden;
  hidden.environment["CUDA_VISIBLE_DEVICES"] = "";
  const ExitStatus end = run({train, "--text", kText, "--steps", "2"}, hidden);
  EXPECT_EQ(end.code, 1) << end.out;
  EXPECT_NE(end.err.find("train_cuda: hvd::cuda: there is no CUDA device for this process"),
            std::string::npos)
      << end.err;
}
#endif

TEST_F(TrainingTest, OneAllreduceAndTheEnd) {
  for (const char* const workers : {"1", "2", "8"}) {
    const ExitStatus end = run_job({"-np", workers, binary("allreduce_once")});
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(end.out, "");
  }
}

}  // namespace
}  // namespace hvd::test
