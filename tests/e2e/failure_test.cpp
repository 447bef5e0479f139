// A worker fails: the job ends, names the worker, its host and the cause, and leaves no process.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "base/machine/proc.h"
#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class FailureTest : public JobTest {
 protected:
  void expect_in(const std::string& text, const Words& parts) {
    for (const auto& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" is not in:\n" << text;
    }
  }
};

TEST_F(FailureTest, AKilledWorkerEndsTheJobWith137AndIsNamed) {
  Process& job = start({"-np", "4", binary("e2e_works")});
  const auto workers = wait_for_workers(job, "working", 4);
  ASSERT_EQ(workers.size(), 4U);
  ASSERT_EQ(kill_one(workers.at(2), SIGKILL), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 137);
  EXPECT_EQ(end.signal, 0);
  expect_in(end.err, {"rank 2", "localhost", std::to_string(workers.at(2)), "SIGKILL"});
  expect_nobody_left("the job ended");
}

TEST_F(FailureTest, AWorkersOwnCodeAndItsLastTwentyLinesAreReported) {
  const ExitStatus end = run_job({"-np", "3", binary("e2e_works"), "--fail", "1", "3"});
  EXPECT_EQ(end.code, 3);
  expect_in(end.err, {"rank 1", "localhost", "exited with code 3"});
  // The lines come twice: streamed with their prefix, and the last ones again in the report.
  const auto report = end.err.rfind("exited with code 3");
  ASSERT_NE(report, std::string::npos);
  const std::string told = end.err.substr(report);
  expect_in(told, {"last words 11.", "last words 30."});
  EXPECT_EQ(told.find("last words 10."), std::string::npos) << told;
  EXPECT_EQ(lines_of_rank(end.err, 1, "stderr").size(), 30U) << end.err;
}

TEST_F(FailureTest, TheReportSaysWhatTheOthersDidAndWhichRankTheyWaitedFor) {
  for (const Words& ends : {Words{}, Words{"--return"}}) {
    Words words{"-np", "3", binary("e2e_works"), "--fail", "1", "3", "--late", "500"};
    words.insert(words.end(), ends.begin(), ends.end());
    const ExitStatus end = run_job(words);
    EXPECT_EQ(end.code, 3);
    const auto table = end.err.find("hvdrun: what ");
    ASSERT_NE(table, std::string::npos) << end.err;
    const std::string told = end.err.substr(table);
    expect_in(told, {" workers did last:\n  rank  worker", "\n  0     localhost#0 ",
                     "\n  2     localhost#2 ", "waits for other ranks for ",
                     "rank 1 on localhost#1 has not asked for \"values"});
  }
}

// hvdrun does not wait long for the last report of a worker that hangs.
TEST_F(FailureTest, AWorkerThatIsStoppedHasNoLastLines) {
  Process& job = start({"-np", "3", "--heartbeat-timeout", "20", binary("e2e_works")});
  const auto workers = wait_for_workers(job, "working", 3);
  ASSERT_EQ(workers.size(), 3U);
  ASSERT_EQ(kill_one(workers.at(2), SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] { return is_stopped(workers.at(2)); }));
  ASSERT_EQ(kill_one(workers.at(1), SIGKILL), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 137);
  const auto table = end.err.find("hvdrun: what 1 worker did last:");
  ASSERT_NE(table, std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("\n  2     localhost#2 ", table), std::string::npos) << end.err;
  expect_nobody_left("the job ended");
}

TEST_F(FailureTest, AJobThatAUserEndsHasNoLastLines) {
  Process& job = start({"-np", "2", binary("e2e_works")});
  ASSERT_EQ(wait_for_workers(job, "working", 2).size(), 2U);
  job.signal(SIGINT);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 130);
  EXPECT_EQ(end.err.find("did last"), std::string::npos) << end.err;
}

TEST_F(FailureTest, TheFirstFailureIsReportedAndNotItsConsequences) {
  // When rank 1 is gone, the others' allreduce fails too and they end with errors of their own.
  for (int i = 0; i < 3; ++i) {
    const ExitStatus end = run_job({"-np", "4", binary("e2e_works"), "--fail", "1", "17"});
    EXPECT_EQ(end.code, 17) << end.err;
  }
}

TEST_F(FailureTest, ARankThatReturnsAnErrorFromMainIsTheCauseAndNotTheRanksThatNoticeIt) {
  // The others are quick: what they catch ends them at once.
  for (int i = 0; i < 5; ++i) {
    const ExitStatus end =
        run_job({"-np", "4", binary("e2e_works"), "--fail", "1", "3", "--return", "--catch", "7"});
    EXPECT_EQ(end.code, 3) << end.err;
    expect_in(end.err, {"rank 1", "exited with code 3"});
  }
}

TEST_F(FailureTest, AKilledRankIsTheCauseAndNotTheRanksThatNoticeIt) {
  for (int i = 0; i < 5; ++i) {
    Process& job = start({"-np", "4", binary("e2e_works"), "--catch", "7"});
    const auto workers = wait_for_workers(job, "working", 4);
    ASSERT_EQ(workers.size(), 4U);
    ASSERT_EQ(kill_one(workers.at(3), SIGKILL), 0);
    const ExitStatus end = job.wait();
    EXPECT_EQ(end.code, 137) << end.err;
    expect_in(end.err, {"rank 3", "SIGKILL"});
  }
}

TEST_F(FailureTest, AForkedChildOfAWorkerIsToldThatItCannotBeOne) {
  const ExitStatus end = run_job({"-np", "2", binary("e2e_works"), "--steps", "3", "--fork"});
  EXPECT_EQ(end.code, 0) << end.err;
  for (int rank = 0; rank < 2; ++rank) {
    const auto lines = lines_of_rank(end.out, rank);
    ASSERT_EQ(lines.size(), 2U) << end.out;
    expect_in(lines[1], {"the child heard", "forked from the worker"});
  }
}

TEST_F(FailureTest, ARankThatNeverCallsInitIsNamedWhenTheInitTimeoutIsOver) {
  // Far less than the default, and enough for three processes on a busy machine.
  const std::string job = binary("hvdrun") +
                          " --init-timeout 4 -np 3 sh -c 'if [ $HVD_RANK = 2 ]; " +
                          "then exec sleep 3600; fi; exec " + binary("e2e_works") + "'";
  const ExitStatus end = run({"timeout", "25", "sh", "-c", "exec " + job},
                             {.environment = {{"HVD_E2E_MARK", mark()}}});
  EXPECT_EQ(end.code, 1) << end.err;
  expect_in(end.err, {"rank 2 on localhost#2 has not called hvd::init for 1 s", "sleep (pid ",
                      "did not call hvd::init within 4 s (--init-timeout), and rank "});
}

TEST_F(FailureTest, ARankThatEndsWellWithoutInitEndsTheJobThatWaitsForIt) {
  const ExitStatus end =
      run_job({"-np", "3", "sh", "-c", "[ $HVD_RANK = 1 ] || exec " + binary("allreduce_once")});
  EXPECT_EQ(end.code, 1) << end.err;
  expect_in(end.err, {"rank 1", "without calling hvd::init", "the world can never be complete"});
}

TEST_F(FailureTest, AWorkerThatLeavesWithoutHavingSaidThatItIsDoneHasFailed) {
  const ExitStatus end = run_job({"-np", "2", binary("e2e_works"), "--leave"});
  EXPECT_NE(end.code, 0);
  expect_in(end.err, {"localhost", "exited with 0 without saying that it was done"});
}

TEST_F(FailureTest, APlainProgramNeedsNoHvd) {
  const ExitStatus end = run_job({"-np", "3", "uname", "-s"});
  EXPECT_EQ(end.code, 0) << end.err;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{"Linux"}) << end.out;
  }
}

TEST_F(FailureTest, APlainProgramsFailureEndsTheOthersAtOnce) {
  const auto trigger = directory() / "go";
  Process& job =
      start({"-np", "2", "sh", "-c",
             "if [ $HVD_RANK = 0 ]; then exec " + binary("e2e_stays") + "; fi; while [ ! -e " +
                 trigger.string() + " ]; do sleep 0.05; done; echo gone >&2; exit 5"});
  ASSERT_TRUE(job.wait_for_output(" up 0.")) << job.err();
  directory_file("go");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 5);
  expect_in(end.err, {"rank 1", "exited with code 5", "gone"});
}

TEST_F(FailureTest, AWorkerThatIgnoresSigtermIsKilledAfterTheGraceTime) {
  Process& job = start({"--grace", "1", "-np", "2", "sh", "-c",
                        "if [ $HVD_RANK = 0 ]; then exec " + binary("e2e_stays") +
                            " --ignore-term --child --daemon; fi; while [ ! -e " +
                            (directory() / "go").string() + " ]; do sleep 0.05; done; exit 6"});
  ASSERT_TRUE(job.wait_for_output(" up 0.")) << job.err();
  directory_file("go");
  EXPECT_EQ(job.wait().code, 6);
  expect_nobody_left("the grace time");
}

// A control group that allows so many bytes, gone with the object. Empty: there can be none here.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::uint64_t limit) {
    std::string path = "/sys/fs/cgroup";
    const char* file = "memory.max";
    for (const auto& line : lines_of(read_file("/proc/self/cgroup"))) {
      const auto memory = line.find(":memory:");
      if (memory != std::string::npos) {
        path = cat("/sys/fs/cgroup/memory", line.substr(memory + 8));
        file = "memory.limit_in_bytes";
        break;
      }
      if (line.starts_with("0::")) path = cat("/sys/fs/cgroup", line.substr(3));
    }
    std::error_code error;
    path = cat(path, "/hvd-test-", ::getpid());
    if (!std::filesystem::create_directory(path, error)) return;
    path_ = path;
    std::ofstream(path + "/" + file) << limit << std::flush;
    usable_ = trim(read_file(path + "/" + file)) == cat(limit);
  }
  ~MemoryGroup() {
    if (path_.empty()) return;
    eventually([this] { return ::rmdir(path_.c_str()) == 0; }, std::chrono::seconds(10));
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  const std::string& path() const { return path_; }
  bool usable() const { return usable_; }

 private:
  std::string path_;
  bool usable_ = false;
};

TEST_F(FailureTest, AWorkerThatTheKernelKillsForLackOfMemoryIsReportedAsThat) {
  constexpr std::uint64_t kLimit = std::uint64_t{192} << 20;
  const MemoryGroup group(kLimit);
  if (!group.usable()) GTEST_SKIP() << "no control groups with a limit of memory here";
  // It reads a line that never ends. Should the limit not hold, its own ends it.
  const std::string worker =
      "ulimit -v 2000000; [ $HVD_RANK = 1 ] && exec tail /dev/zero; exec sleep 600";
  Process job({"sh", "-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\"", group.path(),
               binary("hvdrun"), "-np", "2", "sh", "-c", worker});
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 137) << end.err;
  expect_in(end.err, {"rank 1",
                      "was killed by SIGKILL (signal 9): out of memory (the memory limit "
                      "of its control group is 192 MiB)"});
}

TEST_F(FailureTest, AWorkerThatSomebodyKillsIsNotReportedAsOutOfMemory) {
  Process& job = start({"-np", "2", binary("e2e_stays")});
  const auto workers = wait_for_workers(job, "up", 2);
  ASSERT_EQ(kill_one(workers.at(1), SIGKILL), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 137);
  EXPECT_EQ(end.err.find("out of memory"), std::string::npos) << end.err;
}

TEST_F(FailureTest, AKillForWantOfMemoryInAnotherGroupExplainsNoWorkersEnd) {
  const MemoryGroup group(std::uint64_t{64} << 20);
  if (!group.usable()) GTEST_SKIP() << "no control groups with a limit of memory here";
  Process& job = start({"-np", "2", binary("e2e_stays")});
  const auto workers = wait_for_workers(job, "up", 2);
  Process other({"sh", "-c",
                 "echo $$ >\"$0\"/cgroup.procs && ulimit -v 1000000 && exec tail /dev/zero",
                 group.path()});
  ASSERT_EQ(other.wait().signal, SIGKILL);
  ASSERT_EQ(kill_one(workers.at(1), SIGKILL), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 137);
  EXPECT_EQ(end.err.find("out of memory"), std::string::npos) << end.err;
}

TEST_F(FailureTest, AMissingSharedLibraryIsReportedWithWhatToDo) {
  directory_file("library.c", "int there(void) { return 0; }\n");
  directory_file("program.c", "int there(void);\nint main(void) { return there(); }\n");
  ProcessOptions here;
  here.working_directory = directory();
  ASSERT_EQ(run({HVD_C, "-shared", "-fPIC", "-o", "libthere.so", "library.c"}, here).code, 0);
  ASSERT_EQ(run({HVD_C, "-o", "program", "program.c", "-L.", "-lthere"}, here).code, 0);
  const ExitStatus end = run_job({"-np", "2", directory() / "program"});
  EXPECT_EQ(end.code, 127);
  expect_in(end.err, {"libthere.so: cannot open shared object file",
                      "hvdrun: the program needs the shared library libthere.so, which host "
                      "localhost does not have where its dynamic loader looks: install it there, "
                      "or name its folder in LD_LIBRARY_PATH"});
  ProcessOptions found;
  found.environment["LD_LIBRARY_PATH"] = directory();
  EXPECT_EQ(run_job({"-np", "2", directory() / "program"}, found).code, 0);
}

TEST_F(FailureTest, AProgramThatIsNotThereIsAnErrorThatNamesIt) {
  const ExitStatus end = run_job({"-np", "2", "/nowhere/at-all"});
  EXPECT_NE(end.code, 0);
  expect_in(end.err, {"/nowhere/at-all"});
}

TEST_F(FailureTest, AProgramThatMayNotBeRunIsAnErrorThatNamesIt) {
  const auto file = directory_file("not-executable");
  const ExitStatus end = run_job({"-np", "2", file});
  EXPECT_NE(end.code, 0);
  expect_in(end.err, {file});
}

}  // namespace
}  // namespace hvd::test
