// The output of workers arrives byte for byte, with the prefix of its rank.
#include <regex>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class OutputTest : public JobTest {
 protected:
  ExitStatus run_shell(const std::string& script, Words flags = {"-np", "1"}) {
    flags.insert(flags.end(), {"sh", "-c", script});
    ExitStatus end = run_job(flags);
    EXPECT_EQ(end.code, 0) << end.err;
    return end;
  }
};

TEST_F(OutputTest, EachLineNamesItsRank) {
  const ExitStatus end = run_shell("echo out $HVD_RANK; echo err $HVD_RANK >&2", {"-np", "2"});
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(lines_of_rank(end.out, rank, "stdout"), Words{cat("out ", rank)});
    EXPECT_EQ(lines_of_rank(end.err, rank, "stderr"), Words{cat("err ", rank)});
  }
}

TEST_F(OutputTest, BytesThatAreNoTextPassUnchanged) {
  const ExitStatus end = run_shell(R"(printf '\377\376\200abc\303(\n')");
  EXPECT_EQ(end.out,
            "[0]<stdout>:\xff\xfe\x80"
            "abc\xc3(\n");
}

TEST_F(OutputTest, ALastLineWithoutItsEndIsNotLost) {
  const ExitStatus end = run_shell("printf 'no end'");
  EXPECT_TRUE(end.out.starts_with("[0]<stdout>:no end")) << end.out;
}

TEST_F(OutputTest, ProgressBarsKeepTheirCarriageReturns) {
  const ExitStatus end = run_shell(R"(printf '10%%\r20%%\r30%%\n')");
  EXPECT_NE(end.out.find("10%\r"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("20%\r"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("30%\n"), std::string::npos) << end.out;
}

TEST_F(OutputTest, MuchOutputArrivesWholeAndInOrder) {
  const ExitStatus end =
      run_shell("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done", {"-np", "2"});
  for (int rank = 0; rank < 2; ++rank) {
    const auto lines = lines_of_rank(end.out, rank);
    ASSERT_EQ(lines.size(), 20000U);
    for (std::size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], std::to_string(i));
  }
}

TEST_F(OutputTest, TagsCanBeLeftOut) {
  const ExitStatus end = run_shell("echo bare", {"--tag-output=none", "-np", "1"});
  EXPECT_EQ(end.out, "bare\n");
}

TEST_F(OutputTest, ATimeCanStandBeforeTheTag) {
  const ExitStatus end = run_shell("echo timed", {"--prefix-output-with-timestamp", "-np", "1"});
  EXPECT_TRUE(std::regex_match(end.out, std::regex("\\w{3} \\w{3} [ \\d]\\d \\d\\d:\\d\\d:\\d\\d "
                                                   "\\d{4}\\[0\\]<stdout>:timed\n")))
      << end.out;
}

TEST_F(OutputTest, AtLevelInfoHostsAndConnectionsAreLogged) {
  const ExitStatus end =
      run_job({"--log-level", "INFO", "-np", "2", binary("e2e_works"), "--steps", "1"});
  EXPECT_EQ(end.code, 0) << end.err;
  for (const char* const text : {"host localhost: its agent is ready; it counts ",
                                 "the hosts reach each other: localhost at ",
                                 "generation 1: rank 0 of 2 at ", "generation 1: rank 1 of 2 at ",
                                 "2 ranks share the memory of this host; a batch has at most "}) {
    EXPECT_NE(end.err.find(text), std::string::npos) << text << " is not in\n" << end.err;
  }
}

TEST_F(OutputTest, EachRankCanHaveItsOwnFiles) {
  const std::string folder = directory() / "logs";
  const ExitStatus end = run_shell("echo out $HVD_RANK; echo err $HVD_RANK >&2",
                                   {"--output-filename", folder, "-np", "12"});
  // Padded to the digits of the highest rank, and beside the console.
  for (const int rank : {0, 7, 11}) {
    const std::string name = cat(folder, "/rank.", rank < 10 ? "0" : "", rank);
    EXPECT_EQ(read_file(name + "/stdout"), cat("out ", rank, "\n"));
    EXPECT_EQ(read_file(name + "/stderr"), cat("err ", rank, "\n"));
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{cat("out ", rank)});
  }
}

TEST_F(OutputTest, ThereAreNoColoursWhereThereIsNoTerminal) {
  const ExitStatus end = run_job({"-np", "2", "sh", "-c", "echo x; echo y >&2; exit 3"});
  EXPECT_EQ(end.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(end.err.find('\x1b'), std::string::npos);
}

TEST_F(OutputTest, AWorkersStdinIsEmptyAlsoWhenHvdrunsIsClosed) {
  for (const bool closed : {false, true}) {
    ProcessOptions options;
    options.close_stdin = closed;
    const ExitStatus end = run_job({"-np", "2", "cat"}, options);
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(end.out, "");
  }
}

}  // namespace
}  // namespace hvd::test
