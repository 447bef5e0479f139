// `hvdrun --ledger FILE` and `hvdrun compare A B`, with jobs that train.
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/e2e/job_test.h"
#include "tests/e2e/step_logs.h"
#include "tests/support/texts.h"

namespace hvd::test {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSteps = 12;
constexpr int kSuspended = 75;

class LedgerTest : public JobTest {
 protected:
  std::string file(const std::string& name) const { return (directory() / name).string(); }

  // `hvdrun flags... --ledger NAME train ...`
  Words training(const std::string& name, const Words& flags, const Words& program_flags,
                 int steps = kSteps) const {
    Words words = flags;
    words.insert(words.end(), {"--ledger", file(name), binary("train"), "--text", kText, "--steps",
                               cat(steps), "--batch", "64", "--hidden", "24"});
    words.insert(words.end(), program_flags.begin(), program_flags.end());
    return words;
  }
  // The ledger of a job that has ended well.
  std::string train(const std::string& name, const Words& flags, const Words& program_flags = {},
                    int steps = kSteps) {
    const ExitStatus end = run_job(training(name, flags, program_flags, steps));
    EXPECT_EQ(end.code, 0) << end.err;
    return file(name);
  }

  ExitStatus compare(const std::string& a, const std::string& b) {
    return run_job({"compare", a, b});
  }
  void expect_alike(const std::string& a, const std::string& b, int steps = kSteps) {
    const ExitStatus end = compare(a, b);
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    EXPECT_EQ(end.out, cat(steps, " steps, all alike\n"));
  }

  static std::vector<Json> lines_in(const std::string& name) {
    std::vector<Json> lines;
    for (const auto& line : lines_of(read_file(name))) lines.push_back(Json::parse(line));
    return lines;
  }
  // As this test finds it, without the command.
  static std::pair<int, std::string> first_difference(const std::string& a, const std::string& b) {
    const auto in_a = lines_in(a);
    const auto in_b = lines_in(b);
    for (std::size_t i = 0; i < std::min(in_a.size(), in_b.size()); ++i) {
      for (const auto& [name, digest] : in_a[i]["digests"].items()) {
        if (in_b[i]["digests"][name] != digest) return {in_a[i]["step"].get<int>(), name};
      }
    }
    return {};
  }
  void expect_first_difference(const std::string& a, const std::string& b) {
    const auto [step, tensor] = first_difference(a, b);
    const ExitStatus end = compare(a, b);
    EXPECT_EQ(end.code, 1) << end.out << end.err;
    EXPECT_TRUE(end.out.starts_with(
        cat("step ", step, " is the first that differs, and in it \"", tensor, "\" the first of ")))
        << step << " " << tensor << "\n"
        << end.out;
  }

  const Words shards_{"--shards", "16", "--deterministic"};
};

TEST_F(LedgerTest, OfAnyNumberOfWorkersIsTheSameWithShards) {
  const std::string of_two = train("two", {"-np", "2"}, shards_);
  const std::string of_three = train("three", {"-np", "3"}, shards_);
  expect_alike(of_two, of_three);
  EXPECT_EQ(read_file(of_two), read_file(of_three)) << "down to the bytes of the files";

  struct stat about {};
  ASSERT_EQ(::stat(of_two.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, mode_t{0600});
  const auto lines = lines_in(of_two);
  ASSERT_EQ(lines.size(), std::size_t{kSteps});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_EQ(lines[i]["digests"].begin().key(), "embedding");
    EXPECT_EQ(lines[i]["digests"]["embedding"].get<std::string>().size(), 64U);
    std::set<std::int64_t> samples;
    for (const auto& of_shard : lines[i]["samples"]) {
      EXPECT_EQ(of_shard.size(), 4U);
      for (const auto& sample : of_shard) samples.insert(sample.get<std::int64_t>());
    }
    EXPECT_EQ(lines[i]["samples"].size(), 16U);
    EXPECT_EQ(samples.size(), 64U) << "none of them twice";
  }
}

TEST_F(LedgerTest, TellsTheStepAndTheTensorInWhichRunsDiffer) {
  const std::string with_shards = train("shards", {"-np", "2"}, shards_);
  // A sum along another tree has other bits from the first step on.
  expect_first_difference(with_shards, train("none", {"-np", "3"}));
  expect_first_difference(with_shards, train("seed", {"-np", "2"},
                                             {"--shards", "16", "--deterministic", "--seed", "2"}));

  std::string text = read_file(with_shards);
  for (int lines = 0; lines < 3; ++lines) text.erase(text.rfind('\n', text.size() - 2) + 1);
  const ExitStatus end = compare(with_shards, directory_file("fewer", text));
  EXPECT_EQ(end.code, 1) << end.err;
  EXPECT_EQ(end.out, cat("the ", kSteps - 3, " steps that both have are alike\nonly ", with_shards,
                         " has steps ", kSteps - 2, " to ", kSteps, "\n"));
}

// One bit of one weight, from one step on.
TEST_F(LedgerTest, OneDigestOfManyIsFound) {
  const std::string whole = train("whole", {"-np", "2"}, shards_);
  auto lines = lines_in(whole);
  std::string text;
  for (auto& line : lines) {
    if (line["step"] >= 7) line["digests"]["hidden.bias"] = std::string(64, '0');
    text += line.dump() + "\n";
  }
  const std::string altered = directory_file("altered", text);
  const ExitStatus end = compare(whole, altered);
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(contains(end.out,
                       "step 7 is the first that differs, and in it \"hidden.bias\" the "
                       "first of 1 tensor"))
      << end.out;
  expect_first_difference(whole, altered);
}

TEST_F(LedgerTest, HasEachStepOnceWhenWorkersAreKilled) {
  constexpr int kMany = 300;
  StepLogs step_logs({directory() / "step_logs"});
  Words program_flags = shards_;
  program_flags.insert(program_flags.end(), {"--ledger", file("step_logs")});
  const Words flags{"-np", "3", "--min-np", "1", "--restarts", "100"};
  Process& job = start(training("killed", flags, program_flags, kMany));
  // Rank 0, which writes it, and another one, in turn.
  for (const std::size_t rank : {0U, 1U, 0U, 2U, 0U}) {
    ASSERT_TRUE(step_logs.wait_for_steps_more(20)) << job.err();
    ASSERT_TRUE(step_logs.wait([&] { return step_logs.members().size() > rank; })) << job.err();
    ASSERT_EQ(::kill(step_logs.members()[rank]->pid, SIGKILL), 0);
    step_logs.read();
  }
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_TRUE(contains(end.err, "was killed by SIGKILL")) << end.err;
  expect_alike(file("killed"), train("calm", {"-np", "2"}, shards_, kMany), kMany);
  EXPECT_EQ(read_file(file("killed")), read_file(file("calm"))) << "the samples, too";
}

TEST_F(LedgerTest, GoesOnInTheJobThatTakesUpASuspendedOne) {
  constexpr int kMany = 400;
  const Words flags{"-np", "2", "--min-np", "1", "--state-file", file("state")};
  StepLogs step_logs({directory() / "step_logs"});
  Words program_flags = shards_;
  program_flags.insert(program_flags.end(), {"--ledger", file("step_logs")});
  Process& first = start(training("ledger", flags, program_flags, kMany));
  ASSERT_TRUE(step_logs.wait_for_step(20)) << first.err();
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, kSuspended) << first.err();
  EXPECT_LT(lines_of(read_file(file("ledger"))).size(), std::size_t{kMany});
  train("ledger", flags, program_flags, kMany);
  expect_alike(file("ledger"), train("calm", {"-np", "1"}, shards_, kMany), kMany);
}

TEST_F(LedgerTest, OfAnotherJobIsReplacedAndNoOtherFileIs) {
  const std::string ledger = train("ledger", {"-np", "2"}, shards_);
  train("ledger", {"-np", "1"}, shards_);
  EXPECT_EQ(lines_of(read_file(ledger)).size(), std::size_t{kSteps});

  for (const char* const content : {"weights\n", "weights", "{\"step\":1}\n"}) {
    const std::string other = directory_file("other", content);
    const ExitStatus end = run_job(training("other", {"-np", "2"}, shards_));
    EXPECT_EQ(end.code, 1) << end.err;
    EXPECT_TRUE(contains(end.err, cat("rank 0 could not go on with ", other,
                                      ": its last line is not that of a ledger")))
        << end.err;
    EXPECT_EQ(read_file(other), content);
  }
}

TEST_F(LedgerTest, ThatCannotBeMadeEndsTheJobWhenItBegins) {
  const ExitStatus end = run_job(training("no/such/place", {"-np", "2"}, shards_));
  EXPECT_EQ(end.code, 1) << end.err;
  EXPECT_TRUE(contains(end.err, cat("rank 0 could not open ledger ", file("no/such/place"))))
      << end.err;
}

TEST_F(LedgerTest, IsKeptWithoutHvdrunToo) {
  const ExitStatus end =
      run({"env", cat("HVD_LEDGER=", file("alone")), binary("train"), "--text", kText, "--steps",
           cat(kSteps), "--batch", "64", "--hidden", "24", "--shards", "16", "--deterministic"});
  EXPECT_EQ(end.code, 0) << end.err;
  expect_alike(file("alone"), train("two", {"-np", "2"}, shards_));
}

TEST_F(LedgerTest, ComparingNeedsTwoLedgers) {
  const std::string good = directory_file("good", "{\"step\":1,\"digests\":{}}\n");
  const std::string bad = directory_file("bad", "{\"step\":1,\"digests\":{}}\n{\"step\":1}\n");
  const struct {
    Words words;
    std::string said;
  } cases[] = {
      {{"compare"}, "hvdrun compare: which two files?"},
      {{"compare", good}, "hvdrun compare: which two files?"},
      {{"compare", good, good, good}, "unexpected argument"},
      {{"compare", "", good}, "the name of the file is empty"},
      {{"compare", good, ""}, "the name of the file is empty"},
      {{"compare", "--loud", good, good}, "--loud"},
      {{"compare", good, file("none")}, cat("open ", file("none"))},
      {{"compare", directory().string(), good}, "is a directory"},
      {{"compare", good, bad}, cat(bad, ":2: \"digests\" is missing")},
      {{"compare", bad, good}, cat(bad, ":2: \"digests\" is missing")},
  };
  for (const auto& wrong : cases) {
    const ExitStatus end = run_job(wrong.words);
    EXPECT_EQ(end.code, 2) << wrong.said;
    EXPECT_TRUE(contains(end.err, wrong.said)) << end.err;
    EXPECT_EQ(end.out, "");
  }
  const ExitStatus end = compare(good, good);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "1 step, alike\n");
}

}  // namespace
}  // namespace hvd::test
