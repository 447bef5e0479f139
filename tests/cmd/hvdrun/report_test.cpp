#include "cmd/hvdrun/report.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "cmd/hvdrun/listings.h"

namespace hvd::cli {
namespace {

TEST(Report, AJobThatEndedWellHasNone) { EXPECT_EQ(failure_report({}), ""); }

TEST(Report, AFailureNamesRankHostPidCauseAndShowsTheLastLines) {
  driver::Outcome outcome;
  outcome.exit_code = 137;
  outcome.failure = driver::Failure{
      .worker = {.rank = 2, .host = "node-b", .slot = 1, .incarnation = 3, .pid = 4711},
      .cause = "was killed by SIGKILL (signal 9)",
      .stderr_tail = {"first", "second"},
      .hosts = {}};
  const std::string report = failure_report(outcome);
  for (const char* const part :
       {"rank 2 on node-b#1 (pid 4711)", "was killed by SIGKILL (signal 9)",
        "remaining workers were terminated",
        "last 2 lines of its stderr:\n    first\n    second\n"}) {
    EXPECT_NE(report.find(part), std::string::npos) << part << " in:\n" << report;
  }
  const std::string after_output = failure_report(outcome, "", true);
  EXPECT_EQ(after_output.find("first"), std::string::npos) << "shown twice:\n" << after_output;
}

TEST(Report, TheLastLineSaysHowLongTheJobTookAndWhatHappened) {
  driver::Outcome outcome;
  EXPECT_EQ(end_line(outcome, true, {}), "") << "it did not begin";
  outcome.summary =
      driver::JobSummary{.time = std::chrono::milliseconds(4'200), .outside_recovery = {}};
  EXPECT_EQ(end_line(outcome, true, {}), "hvdrun: the job took 4.2 s; no worker was started\n");

  outcome.summary->worlds = 1;
  outcome.summary->size = 2;
  EXPECT_EQ(end_line(outcome, false, {}), "hvdrun: the job took 4.2 s with 2 workers\n");
  outcome.summary->lost = 1;
  EXPECT_EQ(end_line(outcome, false, {"logs", ""}),
            "hvdrun: the job took 4.2 s with 2 workers, 1 of them lost; output in logs\n");

  outcome.summary = {std::chrono::seconds(124), 3, 2, 1, 2, 14, {}, 0.9987};
  EXPECT_EQ(end_line(outcome, true, {"logs", "job\x1b.jsonl"}),
            "hvdrun: the job took 2 min 4 s: 3 worlds, 1 worker lost, 2 joined, 14 steps redone, "
            "99.8 % of the time outside recovery; output in logs; events in job\\x1b.jsonl\n");
}

driver::Outcome ended_with(int code, const std::vector<std::string>& last_lines) {
  driver::Outcome outcome;
  outcome.exit_code = code;
  outcome.failure = driver::Failure{
      .worker = {.rank = 0, .host = "node-b", .slot = 0, .incarnation = 1, .pid = 4711},
      .cause = cat("exited with code ", code),
      .stderr_tail = last_lines,
      .hosts = {}};
  return outcome;
}

TEST(Report, APromptThatFoundNobodyIsExplained) {
  for (const char* const line : {"bdb.BdbQuit", "EOFError: EOF when reading a line"}) {
    const std::string report = failure_report(ended_with(1, {"Traceback", line}));
    EXPECT_NE(report.find("the standard input of a worker is /dev/null"), std::string::npos)
        << report;
  }
  EXPECT_EQ(failure_report(ended_with(1, {"EOFError"})).find("/dev/null"), std::string::npos);
}

TEST(Report, TheLastLinesOfAWorkerObeyNothingInTheTerminal) {
  const std::string report = failure_report(ended_with(1, {"\x1b[31mred", "a\rb"}));
  EXPECT_NE(report.find("    \\x1b[31mred\n    a\\rb\n"), std::string::npos) << report;
}

TEST(Listings, ControlCharactersAreShownAndNotObeyed) {
  driver::JobSpec spec;
  spec.processes = 2;
  spec.working_directory = "/a\x1b[2J";
  spec.command = {"./train", "b\nc"};
  const std::string plan = dry_run_text(spec, {});
  EXPECT_NE(plan.find("in $'/a\\x1b[2J': ./train $'b\\nc'\n"), std::string::npos) << plan;
  EXPECT_EQ(environment_text({"A=\x1b[31m", "B=plain", "C\x1b="}, {"D\x1b"}),
            "A=$'\\x1b[31m'\nB=plain\nC\\x1b=\n# from each host, where it has them: D\\x1b\n");
}

TEST(Report, AMissingSharedLibraryIsNamedWithWhatToDo) {
  const std::string wanted =
      "hvdrun: the program needs the shared library libthere.so.2, which host node-b does not have "
      "where its dynamic loader looks: install it there, or name its folder in LD_LIBRARY_PATH";
  for (const char* const line :
       {"./train: error while loading shared libraries: libthere.so.2: cannot open shared object "
        "file: No such file or directory",
        "Error loading shared library libthere.so.2: No such file or directory (needed by ./t)"}) {
    const std::string report = failure_report(ended_with(127, {line}));
    EXPECT_NE(report.find(wanted), std::string::npos) << report;
    EXPECT_NE(report.find(line), std::string::npos) << report;
  }
}

TEST(Report, A127OfTheProgramItselfIsNotTheLoaders) {
  const std::string report = failure_report(ended_with(127, {"sh: 1: nowhere: not found"}));
  EXPECT_EQ(report.find("shared library"), std::string::npos) << report;
}

TEST(Report, AFailureWithoutAWorkerGivesTheReason) {
  driver::Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = "the agent on a did not answer";
  EXPECT_EQ(failure_report(outcome), "hvdrun: the job has failed: the agent on a did not answer\n");
}

TEST(Report, AFailedHostHasNoRank) {
  driver::Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = "host a: its agent ended before it was ready";
  outcome.failure =
      driver::Failure{.worker = {.rank = -1, .host = "a", .slot = -1, .incarnation = 0, .pid = 0},
                      .cause = "its agent ended before it was ready",
                      .stderr_tail = {},
                      .hosts = {}};
  EXPECT_EQ(failure_report(outcome),
            "hvdrun: the job has failed: host a: its agent ended before it was ready\n");
}

TEST(Report, ControlCharactersAreEscaped) {
  driver::Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = "host a: \x1b]0;mine\x07 said the agent";
  EXPECT_EQ(failure_report(outcome),
            "hvdrun: the job has failed: host a: \\x1b]0;mine\\x07 said the agent\n");
}

TEST(Report, LostStateIsToldBeforeWhatCameOfIt) {
  driver::Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = "no worker of the world is left";
  outcome.lost_state = "committed state lost: commit 1.7 was reached";
  EXPECT_EQ(failure_report(outcome),
            "hvdrun: committed state lost: commit 1.7 was reached\n"
            "hvdrun: this caused the following failure.\n"
            "hvdrun: the job has failed: no worker of the world is left\n");
}

TEST(Report, AnElasticProgramOfHorovodIsRecognised) {
  driver::Outcome outcome;
  outcome.exit_code = 134;
  outcome.failure =
      driver::Failure{.worker = {.rank = -1, .host = "a", .slot = 1, .incarnation = 3, .pid = 4711},
                      .cause = "was killed by SIGABRT (signal 6)",
                      .stderr_tail = {"what(): [enforce fail at context.cc:27] rank >= 0. -1 vs 0"},
                      .hosts = {}};
  const std::string report = failure_report(outcome);
  EXPECT_NE(report.find("an elastic program of Horovod, which is not supported"), std::string::npos)
      << report;
  EXPECT_NE(report.find("--legacy-clients"), std::string::npos) << report;
}

driver::Outcome hosts_failed(std::vector<driver::FailedHost> hosts) {
  driver::Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = "host h2 cannot take part: connect: h2 refused";
  outcome.failure =
      driver::Failure{.worker = {.rank = -1, .host = "h2", .slot = -1, .incarnation = 0, .pid = 0},
                      .cause = "connect: h2 refused",
                      .stderr_tail = {},
                      .hosts = std::move(hosts)};
  return outcome;
}

TEST(Report, OneHostThatCannotTakePartIsOneSentence) {
  EXPECT_EQ(failure_report(hosts_failed({{"h2", {driver::Step::connect, "h2 refused", 1}}})),
            "hvdrun: the job has failed: host h2 cannot take part: connect: h2 refused\n");
}

TEST(Report, EveryHostThatCannotTakePartIsNamedWithStepAndCause) {
  EXPECT_EQ(failure_report(hosts_failed(
                {{"h2", {driver::Step::connect, "h2 refused", 1}},
                 {"h4", {driver::Step::host_key, "the key has changed\nremove the old one", 1}},
                 {"h7", {driver::Step::find_program, "no ./train there", 127}}})),
            "hvdrun: the job has failed: 3 hosts cannot take part:\n"
            "    h2: connect: h2 refused\n"
            "    h4: host key: the key has changed\n"
            "        remove the old one\n"
            "    h7: find program: no ./train there\n");
}

TEST(Report, AnInterruptedJobHasNotFailed) {
  driver::Outcome outcome;
  outcome.exit_code = 130;
  outcome.reason = "interrupted by SIGINT (signal 2)";
  EXPECT_EQ(failure_report(outcome),
            "hvdrun: the job was ended: interrupted by SIGINT (signal 2)\n");
}

TEST(Listings, TheDryRunShowsRankHostSlotAndTheQuotedCommand) {
  driver::JobSpec spec;
  spec.command = {"./train", "--text", "it's here"};
  spec.working_directory = "/data";
  spec.data_security = "encrypted";
  auto plan = driver::plan_static({{"a", 2}, {"long-name", 1}}, 0, true);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(dry_run_text(spec, *plan),
            "rank  host       slot  local      cross\n"
            "0     a          0     0 of 2     0 of 2\n"
            "1     a          1     1 of 2     0 of 1\n"
            "2     long-name  0     0 of 1     1 of 2\n"
            "in /data: ./train --text 'it'\\''s here'\n"
            "data security: encrypted\n");
}

TEST(Listings, TheDryRunOfAnElasticJobShowsItsFirstWorld) {
  driver::JobSpec spec;
  spec.command = {"p"};
  spec.working_directory = "/";
  spec.hosts = {{"a", 4}};
  spec.elastic.emplace();
  const auto plan = driver::plan_static(spec.hosts, 2, true);
  ASSERT_TRUE(plan.ok());
  const auto workers = [&](const driver::Limits& limits) {
    spec.elastic->limits = limits;
    const auto lines = split(dry_run_text(spec, *plan), '\n');
    return lines.size() - 5;  // the head, three lines at the end, and what follows the last
  };
  EXPECT_EQ(workers({.least = 1, .most = 0}), 4U);
  EXPECT_EQ(workers({.least = 1, .most = 3}), 3U);
  EXPECT_EQ(workers({.least = 1, .most = 4, .spares = 1}), 3U);
  EXPECT_NE(dry_run_text(spec, *plan)
                .find("the first world, if all hosts are ready in time; at least "
                      "1, at most 4 workers\n"),
            std::string::npos);
}

TEST(Listings, TheEnvironmentCanBeReadByAShell) {
  EXPECT_EQ(environment_text({"A=b c", "E=", "P=/bin"}, {"HOME", "USER"}),
            "A='b c'\nE=\nP=/bin\n# from each host, where it has them: HOME USER\n");
}

TEST(Listings, CheckBuildMarksWhatThisBuildHas) {
  const std::string text = check_build_text({});
  EXPECT_NE(text.find("Available Controllers:\n    [ ] MPI\n    [X] Gloo\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("    [ ] NCCL\n"), std::string::npos);
  EXPECT_NE(text.find("    [ ] NVIDIA GPUs: 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    [ ] libhvd_nccl.so: not found beside hvdrun\n"), std::string::npos)
      << text;

  EXPECT_NE(text.find("    [ ] MPI\n    [X] Gloo\n\nOn This Machine"), std::string::npos) << text;

  const std::string with = check_build_text(
      {{true, "/opt/lib/libhvd_nccl.so"}, {true, "/opt/lib/libhvd_openmpi.so"}, {}, {}, 8});
  EXPECT_NE(with.find("    [X] NCCL\n"), std::string::npos) << with;
  EXPECT_NE(with.find("    [X] NVIDIA GPUs: 8\n"), std::string::npos) << with;
  EXPECT_NE(with.find("    [X] libhvd_nccl.so: /opt/lib/libhvd_nccl.so\n"), std::string::npos)
      << with;
  EXPECT_NE(with.find("    [X] MPI\n    [X] Gloo\n\nOn This Machine"), std::string::npos) << with;
  EXPECT_NE(with.find("    [X] libhvd_openmpi.so: /opt/lib/libhvd_openmpi.so\n"), std::string::npos)
      << with;
  EXPECT_NE(with.find("    [ ] libhvd_mpich.so: not found beside hvdrun\n"), std::string::npos)
      << with;
  EXPECT_NE(with.find("    [ ] CCL\n"), std::string::npos) << with;

  const std::string oneccl = check_build_text({.oneccl = {true, "/opt/lib/libhvd_oneccl.so"}});
  EXPECT_NE(oneccl.find("    [X] CCL\n"), std::string::npos) << oneccl;
  EXPECT_NE(oneccl.find("    [X] libhvd_oneccl.so: /opt/lib/libhvd_oneccl.so\n"), std::string::npos)
      << oneccl;
}

}  // namespace
}  // namespace hvd::cli
