// The output of real workers under the real hvdrun.
#include <array>
#include <filesystem>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/socket.h"
#include "base/text.h"
#include "tests/support/exec_arguments.h"
#include "tests/support/process.h"
#include "tests/support/texts.h"

namespace hvd::test {
namespace {

using Arguments = std::vector<std::string>;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

Arguments job(const Arguments& options, const std::string& script) {
  Arguments arguments{binary("hvdrun")};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"sh", "-c", script});
  return arguments;
}

// Marks every process of a job, so that a test can see that none is left.
ProcessOptions marked(const std::string& mark) {
  ProcessOptions options;
  options.environment = {{"HVD_TEST_MARK", mark}};
  return options;
}

TEST(HvdrunOutput, LinesHaveThePrefixOfTheirRankAndStream) {
  const auto status =
      run(job({"-np", "2"}, "echo out $HVD_RANK; echo err $HVD_RANK >&2; printf unfinished"));
  EXPECT_EQ(status.code, 0) << status.err;
  for (const char* const rank : {"0", "1"}) {
    EXPECT_TRUE(contains(status.out, cat("[", rank, "]<stdout>:out ", rank, "\n"))) << status.out;
    EXPECT_TRUE(contains(status.out, cat("[", rank, "]<stdout>:unfinished\n"))) << status.out;
    EXPECT_TRUE(contains(status.err, cat("[", rank, "]<stderr>:err ", rank, "\n"))) << status.err;
  }
  EXPECT_EQ(count(status.out, "\n"), 4U);
}

// The SIGHUP that comes with it and the output that fails are one request, whichever is first.
TEST(HvdrunOutput, ATerminalThatIsClosedEndsTheJobAsSighupDoes) {
  Arguments words =
      job({"-np", "1"}, "trap 'sleep 0.2; exit 0' TERM; while :; do echo more; sleep 0.01; done");
  for (int attempt = 0; attempt < 5; ++attempt) {
    int terminal = -1;
    const pid_t hvdrun = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    ASSERT_GE(hvdrun, 0);
    if (hvdrun == 0) {
      ::execv(words[0].c_str(), exec_arguments(words).data());
      ::_exit(127);
    }
    UniqueFd screen(terminal);
    std::string shown;
    std::array<char, 256> buffer{};
    while (shown.find("more") == std::string::npos) {
      ASSERT_TRUE(wait_for(screen.get(), POLLIN, Clock::now() + kGenerous).ok()) << shown;
      const ssize_t got = ::read(screen.get(), buffer.data(), buffer.size());
      ASSERT_GT(got, 0) << shown;
      shown.append(buffer.data(), static_cast<std::size_t>(got));
    }
    screen.reset();
    const UniqueFd ends(static_cast<int>(::syscall(SYS_pidfd_open, hvdrun, 0)));
    const bool has_ended = wait_for(ends.get(), POLLIN, Clock::now() + kGenerous).ok();
    if (!has_ended) ::kill(hvdrun, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(hvdrun, &status, 0), hvdrun);
    ASSERT_TRUE(has_ended);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGHUP);
  }
}

TEST(HvdrunOutput, AJobInsideAJobHasNothingOfTheOuterOne) {
  ProcessOptions options;
  options.environment = {{"HVD_HOST_LABELS", "gpu=H100"}};
  const auto status =
      run({binary("hvdrun"), "--tag-output=none", "-np", "1", "--min-np", "1", "sh", "-c",
           cat("echo outer $HVD_ELASTIC; ", binary("hvdrun"),
               " --tag-output=none -np 1 sh -c 'echo inner $HVD_ELASTIC$HOROVOD_ELASTIC"
               "$HVD_HOST_LABELS.'")},
          options);
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(status.out, "outer 1\ninner .\n");
}

TEST(HvdrunOutput, AJobOnThisMachineRunsWithItsInterfaces) {
  for (const Arguments& kind : std::vector<Arguments>{{}, {"--min-np", "1"}}) {
    Arguments options{"-np", "1", "--tag-output=none", "--network-interface", "lo"};
    options.insert(options.end(), kind.begin(), kind.end());
    const auto status = run(job(options, "echo $HVD_RENDEZVOUS_ADDR"));
    EXPECT_EQ(status.code, 0) << status.err;
    EXPECT_EQ(status.out, "127.0.0.1\n");
  }
}

TEST(HvdrunOutput, DefaultsOfProgramsGiveWayToWhatIsSet) {
  const std::string script = "echo $PYTHONUNBUFFERED $TORCH_NCCL_ASYNC_ERROR_HANDLING";
  EXPECT_EQ(run(job({"-np", "1", "--tag-output=none"}, script)).out, "1 1\n");
  EXPECT_EQ(run(job({"-np", "1", "--tag-output=none", "--env", "PYTHONUNBUFFERED=0"}, script)).out,
            "0 1\n");
  ProcessOptions options;
  options.environment = {{"PYTHONUNBUFFERED", "0"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}};
  EXPECT_EQ(run(job({"-np", "1", "--tag-output=none"}, script), options).out, "0 3\n");
}

TEST(HvdrunOutput, AFilterThatHidesAllWorkersIsWarnedOf) {
  const std::string warning =
      "hvdrun: warning: --local-ranks-filter shows the output of no worker: the highest local rank "
      "is 1\n";
  for (const Arguments& kind : std::vector<Arguments>{{}, {"--min-np", "2"}}) {
    Arguments options{"-np", "2", "--local-ranks-filter", "9"};
    options.insert(options.end(), kind.begin(), kind.end());
    const auto hidden = run(job(options, "echo line"));
    EXPECT_EQ(hidden.code, 0) << hidden.err;
    EXPECT_EQ(hidden.out, "");
    EXPECT_EQ(count(hidden.err, warning), 1U) << hidden.err;
  }
  const auto one = run(job({"-np", "2", "--local-ranks-filter", "1,9"}, "echo line"));
  EXPECT_EQ(one.out, "[1]<stdout>:line\n");
  EXPECT_FALSE(contains(one.err, "warning")) << one.err;
}

TEST(HvdrunOutput, TheStandardInputOfWorkersIsEmpty) {
  const auto status = run({"sh", "-c",
                           "echo line | " + binary("hvdrun") +
                               " --tag-output=none -np 1 sh -c 'readlink /proc/self/fd/0; cat'"});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(status.out, "/dev/null\n");
}

TEST(HvdrunOutput, BytesThatAreNoTextPassUnchanged) {
  const auto status = run(job({"-np", "1", "--tag-output=none"}, R"(printf '\377\200\001x\r\ny')"));
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(status.out, "\xff\x80\x01x\r\ny");
  EXPECT_EQ(status.err, "");
}

TEST(HvdrunOutput, EveryByteOfALotOfOutputArrives) {
  const auto status = run(job({"-np", "2", "--tag-output=none"}, "head -c 20000000 /dev/zero"));
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(status.out.size(), 40'000'000U);
}

TEST(HvdrunOutput, FilesHoldEachRanksBytes) {
  const TemporaryDirectory directory;
  const auto status = run(job({"-np", "2", "--output-filename", directory.path().string()},
                              "echo out $HVD_RANK; printf 'err %s' $HVD_RANK >&2"));
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(read_file(directory.path() / "rank.0/stdout"), "out 0\n");
  EXPECT_EQ(read_file(directory.path() / "rank.1/stderr"), "err 1");
  EXPECT_TRUE(contains(status.out, "[0]<stdout>:out 0\n")) << status.out;
}

// Output only observes the job.
TEST(HvdrunOutput, AFullDiskUnderAFileIsAWarningThatNamesTheFile) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path() / "rank.1");
  std::filesystem::create_symlink("/dev/full", directory.path() / "rank.1/stdout");
  const auto status = run(job({"-np", "2", "--output-filename", directory.path().string()},
                              "echo line; echo line; echo done >&2"));
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_TRUE(contains(status.err, "warning: the job goes on")) << status.err;
  EXPECT_EQ(count(status.err, "rank.1/stdout: No space left on device"), 1U) << status.err;
  EXPECT_EQ(count(status.err, ":done"), 2U) << status.err;
}

TEST(HvdrunOutput, AFullDiskUnderStdoutIsAWarning) {
  const auto status =
      run({"sh", "-c",
           "exec " + binary("hvdrun") + " -np 2 sh -c 'echo line; echo done >&2' > /dev/full"});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(count(status.err,
                  "its output is lost from here on: write to standard output: No space "
                  "left on device"),
            1U)
      << status.err;
  EXPECT_EQ(count(status.err, ":done"), 2U) << status.err;
}

TEST(HvdrunOutput, AReaderThatLeavesEndsTheJobWith141) {
  const TemporaryDirectory directory;
  const std::string mark = cat("head-", ::getpid());
  const std::string code = (directory.path() / "code").string();
  const auto status =
      run({"sh", "-c",
           "(" + binary("hvdrun") + " -np 2 sh -c 'while :; do echo line; done'; echo $? > " +
               code + ") | head -n 1"},
          marked(mark));
  EXPECT_EQ(count(status.out, "\n"), 1U) << status.out;
  EXPECT_EQ(read_file(code), "141\n") << status.err;
  EXPECT_TRUE(wait_until_gone("HVD_TEST_MARK", mark));
}

TEST(HvdrunOutput, AReaderThatSleepsDoesNotBlockTheWorkersForEver) {
  const TemporaryDirectory directory;
  const std::string done = (directory.path() / "done").string();
  // The reader reads only when the worker has ended. Its output is more than all queues hold.
  const auto status =
      run({"sh", "-c",
           binary("hvdrun") +
               " -np 1 --tag-output=none --output-stall-timeout 0.5 sh -c "
               "'yes | head -c 40000000; echo > " +
               done + "' | (until [ -e " + done + " ]; do sleep 0.01; done; wc -c)"});
  const auto bytes = parse_number<std::size_t>(trim(status.out));
  ASSERT_TRUE(bytes) << status.out << status.err;
  EXPECT_LT(*bytes, 40'000'000U);
  EXPECT_TRUE(contains(status.err, "bytes of output were dropped: nobody read standard output"))
      << status.err;
}

TEST(HvdrunOutput, OutputFromBeforeAnInterruptionIsShown) {
  // One write: an interruption cannot come between the line and its successor's first half.
  Process process(job({"-np", "2"}, "printf 'before %s\\nhalf' $HVD_RANK; exec sleep 600"));
  ASSERT_TRUE(process.wait_for_output("before 0"));
  ASSERT_TRUE(process.wait_for_output("before 1"));
  process.signal(SIGINT);
  const auto status = process.wait();
  EXPECT_EQ(status.code, 130) << status.err;
  EXPECT_EQ(count(status.out, "<stdout>:half\n"), 2U) << status.out;
}

TEST(HvdrunOutput, AFailureIsReportedInOneParagraph) {
  const auto status = run(job(
      {"-np", "2"}, "[ $HVD_RANK = 1 ] || exec sleep 600; seq 1 25 >&2; echo the end >&2; exit 7"));
  EXPECT_EQ(status.code, 7) << status.err;
  for (const char* const part : {"rank 1 on localhost#1 (pid ", "code 7", "the last 20 lines",
                                 "    the end\n", "    25\n", "    7\n"}) {
    EXPECT_TRUE(contains(status.err, part)) << part << " in:\n" << status.err;
  }
  EXPECT_FALSE(contains(status.err, "    6\n")) << status.err;
}

TEST(HvdrunOutput, LostStateIsReportedFirstWhicheverWorkerFailedFirst) {
  const TemporaryDirectory directory;
  const auto status = run(job({"-np", "2"},
                              "if [ $HVD_RANK = 1 ]; then "
                              "echo 'what(): committed state lost: commit 1.7 was reached' >&2; "
                              "touch lost; exec sleep 600; fi; "
                              "while [ ! -e lost ]; do sleep 0.02; done; sleep 0.2; exit 3"),
                          {.working_directory = directory.path()});
  EXPECT_EQ(status.code, 3) << status.err;
  const auto lost = status.err.find("hvdrun: committed state lost: commit 1.7 was reached\n");
  const auto failed = status.err.find("hvdrun: the job has failed: rank 0");
  EXPECT_NE(lost, std::string::npos) << status.err;
  EXPECT_LT(lost, failed) << status.err;
}

// The output of a worker passes unchanged; hvdrun's own messages about others hold no character
// that controls a terminal.
TEST(HvdrunOutput, ControlCharactersOfAScriptAreShownNotObeyed) {
  const TemporaryDirectory directory;
  const auto script = directory.file(
      "discover.sh", "#!/bin/sh\nprintf 'no \\033[2J\\033]0;hosts\\007 today' >&2\nexit 3\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const auto status = run({binary("hvdrun"), "--host-discovery-script", script.string(), "true"});
  EXPECT_EQ(status.code, 1) << status.err;
  EXPECT_TRUE(contains(status.err, "no \\x1b[2J\\x1b]0;hosts\\x07 today")) << status.err;
  EXPECT_EQ(status.err.find('\033'), std::string::npos) << status.err;
}

TEST(HvdrunOutput, AClosedStdinDoesNotMatter) {
  ProcessOptions options;
  options.close_stdin = true;
  const auto status = run(job({"-np", "2"}, "echo fine"), options);
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(count(status.out, "<stdout>:fine\n"), 2U) << status.out;
}

}  // namespace
}  // namespace hvd::test
