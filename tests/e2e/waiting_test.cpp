// Jobs that wait: for nothing, or for a rank that does not come.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/text.h"
#include "tests/e2e/job_test.h"
#include "tests/e2e/terminal.h"

namespace hvd::test {
namespace {

class WaitingTest : public JobTest {
 protected:
  static void expect_in(const std::string& text, const Words& parts) {
    for (const auto& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" is not in:\n" << text;
    }
  }
  // One that stands still, with the others waiting for the last of four ranks.
  Process& start_stalled(const Words& flags) {
    Words words{"-np", "4"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {binary("e2e_waits"), "stall"});
    return start(words);
  }
  // The PID of a line "PID stalled 3."; -1: there is none.
  static pid_t stalled_rank(Process& job) {
    if (!job.wait_for_output(" stalled 3.\n")) return -1;
    for (const auto& line : lines_of_rank(job.out(), 3)) {
      if (line.ends_with(" stalled 3.")) return std::stoi(line);
    }
    return -1;
  }
};

// A thousandth of a core is 1 ms in a second. The bytes of a step show that bytes are counted.
TEST_F(WaitingTest, AnIdleJobUsesLessThanAThousandthOfACorePerWorkerAndSendsNothing) {
  constexpr int kSeconds = 5;
  const ExitStatus end =
      run_job({"-np", "4", binary("e2e_waits"), "idle", std::to_string(kSeconds)});
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  for (int rank = 0; rank < 4; ++rank) {
    const auto lines = lines_of_rank(end.out, rank);
    ASSERT_EQ(lines.size(), 1U) << end.out;
    const std::regex said(
        "idle [0-9]: ([0-9]+) us, ([0-9]+) wakeups, ([0-9]+) bytes; then ([0-9]+) bytes\\.");
    std::smatch cost;
    ASSERT_TRUE(std::regex_match(lines.front(), cost, said)) << lines.front();
    EXPECT_LT(std::stol(cost[1]), kSeconds * 1000) << lines.front();
    EXPECT_LE(std::stol(cost[2]), kSeconds * 4) << lines.front();
    EXPECT_EQ(cost[3], "0") << lines.front();
    EXPECT_GT(std::stol(cost[4]), 0) << lines.front();
  }
}

TEST_F(WaitingTest, AStalledRankIsWarnedAboutAndTheJobGoesOnWhenItComesBack) {
  Process& job = start_stalled({"--stall-check-warning-time-seconds", "1"});
  const pid_t stalled = stalled_rank(job);
  ASSERT_GT(stalled, 0) << job.out() << job.err();
  ASSERT_TRUE(job.wait_for_error("rank 3 on localhost#3 has not asked for")) << job.err();
  ASSERT_TRUE(job.wait_for_error("\" last, ")) << job.err();
  const auto warning = job.err();
  expect_in(warning, {"[0]<stderr>:", "waiting for more than 1 s", "\"gradients\"", "\"weights\"",
                      "its connection is up, it asked for \"first\" last, "});
  EXPECT_EQ(warning.find("  rank 1 on"), std::string::npos)
      << "the rank that waits is not the missing one";
  ASSERT_EQ(kill_one(stalled, SIGUSR2), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  expect_in(end.err, {"\"gradients\" goes on, after it had waited for ",
                      "\"weights\" goes on, after it had waited for "});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(lines_of_rank(end.out, rank).back(), cat("ok ", rank, ".")) << end.out;
  }
}

TEST_F(WaitingTest, AStallThatLastsUntilTheShutdownTimeEndsTheJobForThatReason) {
  Process& job = start_stalled(
      {"--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "2"});
  const ExitStatus end = job.wait();
  EXPECT_NE(end.code, 0);
  expect_in(end.err, {"waiting for more than 1 s", "stalled for 2 s, the limit is 2 s",
                      "rank 3 on localhost#3 has not asked for"});
}

TEST_F(WaitingTest, WithTheStallCheckTurnedOffNobodyIsWarned) {
  Process& job = start_stalled(
      {"--no-stall-check", "--stall-check-warning-time-seconds", "1", "--log-level", "debug"});
  const pid_t stalled = stalled_rank(job);
  ASSERT_GT(stalled, 0) << job.out() << job.err();
  // Longer than the warning would have taken.
  EXPECT_FALSE(job.wait_for_error("waiting for more than", std::chrono::seconds(3))) << job.err();
  ASSERT_EQ(kill_one(stalled, SIGUSR2), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_EQ(end.err.find("goes on, after"), std::string::npos) << end.err;
}

TEST_F(WaitingTest, ANameThatIsInFlightIsRefusedAtOnceAndItsFirstUseStands) {
  const ExitStatus end = run_job({"-np", "3", binary("e2e_waits"), "duplicate"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  for (int rank = 0; rank < 3; ++rank) {
    const auto lines = lines_of_rank(end.out, rank);
    ASSERT_EQ(lines.size(), rank < 2 ? 2U : 1U) << end.out;
    EXPECT_EQ(lines.back(), cat("ok ", rank, "."));
    if (rank < 2) expect_in(lines.front(), {"\"twice\"", "in flight"});
  }
}

TEST_F(WaitingTest, LogLinesHaveTheirTimeRankAndLevelAsTheFlagsSay) {
  const Words job{"-np", "2", binary("e2e_waits"), "duplicate"};
  const auto logged = [&](const Words& flags) {
    Words words = flags;
    words.insert(words.end(), job.begin(), job.end());
    const ExitStatus end = run_job(words);
    EXPECT_EQ(end.code, 0) << end.err;
    return end.err;
  };
  // Nothing but hvdrun's last line.
  const std::string quiet = logged({});
  EXPECT_TRUE(quiet.starts_with("hvdrun: the job took ")) << quiet;
  EXPECT_EQ(lines_of(quiet).size(), 1U) << quiet;
  const std::string with_time = logged({"--log-level", "debug"});
  const std::string without = logged({"--log-level", "DEBUG", "--log-without-timestamp"});
  const std::string message = "response cache: [0-9]+ hits, [0-9]+ misses";
  for (int rank = 0; rank < 2; ++rank) {
    const std::regex timed(cat("\\[20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{8}\\.[0-9]{6} rank ", rank,
                               " debug\\] ", message, ".*"));
    const std::regex bare(cat("\\[rank ", rank, " debug\\] ", message, ".*"));
    const auto has = [rank](const std::string& text, const std::regex& line) {
      const auto lines = lines_of_rank(text, rank, "stderr");
      return std::any_of(lines.begin(), lines.end(),
                         [&](const auto& one) { return std::regex_match(one, line); });
    };
    EXPECT_TRUE(has(with_time, timed)) << with_time;
    EXPECT_TRUE(has(without, bare)) << without;
  }
}

TEST_F(WaitingTest, OnATerminalTheLastLinesOfAWorkerAreShownOnce) {
  Terminal terminal({{"HVD_E2E_MARK", mark()}, {"TERM", "xterm"}});
  terminal.resize(40, 200);
  terminal.type(
      cat(binary("hvdrun"), " -np 1 sh -c 'echo last wor\"\"ds >&2; exit 3'; echo code=$?.\n"));
  ASSERT_TRUE(terminal.wait_for("code=3.")) << terminal.screen();
  const std::string& screen = terminal.screen();
  const auto shown = screen.find("last words");
  ASSERT_NE(shown, std::string::npos) << screen;
  EXPECT_EQ(screen.find("last words", shown + 1), std::string::npos) << screen;
  EXPECT_NE(screen.find("rank 0 on localhost#0 (pid "), std::string::npos) << screen;
  terminal.type("exit\n");
}

// The line is drawn below the output, and is gone when the job goes on.
TEST_F(WaitingTest, OnATerminalALiveLineSaysWhatTheJobWaitsFor) {
  const auto hosts = directory() / "hosts";
  const auto script = directory() / "discover.sh";
  std::ofstream(hosts) << "localhost:1\n";
  std::ofstream(script) << "#!/bin/sh\ncat " << hosts.string() << "\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  Terminal terminal({{"HVD_E2E_MARK", mark()}, {"TERM", "xterm"}});
  terminal.resize(40, 200);
  terminal.type(cat(binary("hvdrun"), " --min-np 2 --host-discovery-script ", script.string(),
                    " echo went on; echo code=$?.\n"));
  ASSERT_TRUE(terminal.wait_for("\r\x1b[Khvdrun: waiting for ")) << terminal.screen();
  ASSERT_TRUE(terminal.wait_for("at least 2 workers needed, 1 slot is ready on 1 of 1 host"))
      << terminal.screen();
  ASSERT_TRUE(terminal.wait_for(" s so far")) << terminal.screen();
  const std::string screen = terminal.screen();
  EXPECT_EQ(screen.find("\nhvdrun: waiting for"), std::string::npos) << "a line that stays:\n"
                                                                     << screen;

  std::ofstream(hosts) << "localhost:2\n";
  ASSERT_TRUE(terminal.wait_for("code=0.")) << terminal.screen();
  const std::string all = terminal.screen();
  const auto last = all.rfind("hvdrun: waiting for");
  const auto wiped = all.find("\r\x1b[K", last);
  EXPECT_LT(wiped, all.find("went on", last)) << all;
  terminal.type("exit\n");
}

}  // namespace
}  // namespace hvd::test
