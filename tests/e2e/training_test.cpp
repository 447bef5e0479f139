// The main job: a real model on a real text, with as many workers as are asked for, on whatever
// hosts.
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

// This repository's licence, which changes less than its docs do.
constexpr const char* kText = HVD_SOURCE_DIR "/LICENSE";

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

  // What stands between "loss" and the speed, line by line: the speed is never the same twice.
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
  const std::string folder = directory();
  const struct {
    Words words;
    std::string said;
  } cases[] = {
      {{train, "--text", "/nowhere.txt"}, "/nowhere.txt: No such file or directory"},
      {{train, "--text", empty}, empty + ": there is nothing in it"},
      {{train, "--text", three}, three + ": 3 bytes in all, but --context 12 needs at least 13"},
      {{train, "--text", folder}, folder + ": holds no *.md file"},
      {{train, "--steps", "many"}, "--steps many: expected a whole number"},
      {{train, "--lr", "-1"}, "--lr -1: expected a number above 0"},
      {{train, "--batch"}, "--batch needs a value"},
      {{train, "--bach", "2"}, "unknown argument --bach"},
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

TEST_F(TrainingTest, ABatchSmallerThanTheWorldIsAnErrorThatSaysSo) {
  Words words = training({"-np", "3"});
  words.insert(words.end(), {"--batch", "2"});
  const ExitStatus end = run_job(words);
  EXPECT_EQ(end.code, 2) << end.err;
  EXPECT_NE(end.err.find("3 workers need at least one sample each"), std::string::npos) << end.err;
}

TEST_F(TrainingTest, OneAllreduceAndTheEnd) {
  for (const char* const workers : {"1", "2", "8"}) {
    const ExitStatus end = run_job({"-np", workers, binary("allreduce_once")});
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(end.out, "");
  }
}

}  // namespace
}  // namespace hvd::test
