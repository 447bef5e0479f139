// Nothing outlives hvdrun, however it ends, and a person's signals end a job as they expect.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>

#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class LifetimeTest : public JobTest {
 protected:
  // A job of `count` workers, each with what `flags` makes it have; blocks until all are there.
  Process& start_staying(int count, const Words& flags, const Words& words = {}) {
    Words command = words;
    command.insert(command.end(), {"-np", std::to_string(count), binary("e2e_stays")});
    command.insert(command.end(), flags.begin(), flags.end());
    Process& job = start(command);
    wait_for_workers(job, "up", count);
    return job;
  }
};

TEST_F(LifetimeTest, KillingHvdrunLeavesNoProcess) {
  Process& job = start_staying(3, {});
  EXPECT_GE(processes().size(), 4U);
  crash(job);
  expect_nobody_left("kill -9 of hvdrun");
}

TEST_F(LifetimeTest, KillingHvdrunLeavesNoChildNoDaemonAndNoneThatIgnoresSigterm) {
  Process& job = start_staying(2, {"--ignore-term", "--child", "--daemon"});
  // hvdrun, two workers, two children, two daemons: all carry the mark.
  EXPECT_GE(processes().size(), 7U);
  crash(job);
  expect_nobody_left("kill -9 of hvdrun");
}

TEST_F(LifetimeTest, KillingHvdrunLeavesNoProcessEvenIfAReaperHadBeenStopped) {
  Process& job = start_staying(2, {"--ignore-term"});
  const auto agents = children_named(job.pid(), "hvd-agent");
  ASSERT_EQ(agents.size(), 1U);
  const auto reapers = children_named(agents[0], "hvd-reaper");
  ASSERT_EQ(reapers.size(), 2U);
  ASSERT_EQ(kill_one(reapers[0], SIGSTOP), 0);
  crash(job);
  expect_nobody_left("kill -9 of hvdrun");
}

// With a grace of 0 the workers are not even told.
TEST_F(LifetimeTest, AnAgentThatIsToldToEndGivesItsWorkersTheGraceOfTheJob) {
  const ExitStatus end = run_job(
      {"-np", "1", "--grace", "0", "sh", "-c",
       "trap 'echo told; exit 3' TERM; kill $(cut -d' ' -f4 /proc/$PPID/stat); sleep 1000 & wait"});
  EXPECT_NE(end.code, 0);
  EXPECT_EQ(end.out.find("told"), std::string::npos) << end.out;
  EXPECT_NE(end.err.find("was told to end by signal 15"), std::string::npos) << end.err;
  expect_nobody_left("the end of the job");
}

TEST_F(LifetimeTest, KillingTheAgentIsReportedAndLeavesNoProcess) {
  Process& job = start_staying(2, {"--ignore-term", "--child", "--daemon"}, {"--grace", "1"});
  const auto agents = children_named(job.pid(), "hvd-agent");
  ASSERT_EQ(agents.size(), 1U);
  ASSERT_EQ(kill_one(agents[0], SIGKILL), 0);
  const ExitStatus end = job.wait();
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.err.find("localhost"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("agent"), std::string::npos) << end.err;
  expect_nobody_left("kill -9 of the agent");
}

TEST_F(LifetimeTest, LeftoversOfAWorkerAreGoneWhenTheJobEndsWell) {
  const std::string file = directory() / "go";
  Process& job = start_staying(2, {"--child", "--daemon", "--until", file});
  directory_file("go");
  EXPECT_EQ(job.wait().code, 0);
  expect_nobody_left("a job that ended well");
}

TEST_F(LifetimeTest, CtrlCEndsTheJobWith130) {
  Process& job = start_staying(3, {"--child"});
  job.signal(SIGINT);
  EXPECT_EQ(job.wait().code, 130);
  expect_nobody_left("Ctrl-C");
}

TEST_F(LifetimeTest, CtrlCSaysAtOnceWhatItDoesAndWhatASecondOneWould) {
  // The workers ignore SIGTERM, and the grace time would outlast the test's time limit.
  for (const Words& flags : {Words{}, Words{"--min-np", "1"}}) {
    Words all{"--grace", "3600"};
    all.insert(all.end(), flags.begin(), flags.end());
    Process& job = start_staying(2, {"--ignore-term"}, all);
    job.signal(SIGINT);
    ASSERT_TRUE(job.wait_for_error(
        "hvdrun: interrupted by SIGINT (signal 2): stopping 2 workers (SIGTERM now, SIGKILL after "
        "3600 s); a second signal kills at once\n"))
        << job.err();
    signal_until(job, SIGINT, "hvdrun: a second signal, SIGINT (signal 2): killing what is left\n");
    EXPECT_EQ(job.wait().code, 130);
    expect_nobody_left("the second Ctrl-C");
  }
}

TEST_F(LifetimeTest, SigtermEndsTheJobWith143) {
  Process& job = start_staying(3, {"--child"});
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
  expect_nobody_left("SIGTERM");
}

TEST_F(LifetimeTest, WorkersThatAreStoppedDoNotComplainOfEachOther) {
  // Some are gone before others have got the signal: that must not look like a crash.
  for (int i = 0; i < 5; ++i) {
    Process& job = start({"-np", "4", binary("e2e_works")});
    wait_for_workers(job, "working", 4);
    job.signal(SIGTERM);
    const ExitStatus end = job.wait();
    EXPECT_EQ(end.code, 143);
    EXPECT_EQ(end.err.find("terminate called"), std::string::npos) << end.err;
  }
}

TEST_F(LifetimeTest, AWorkerThatWaitsInInitEndsBySigterm) {
  // Only the grace could end it else, and that outlasts the test's time limit.
  Process& job = start({"--grace", "3600", "--start-timeout", "3600", "-np", "2", "sh", "-c",
                        "[ $HVD_RANK = 1 ] && exec sleep 3600; exec " + binary("e2e_works")});
  // With the threads of hvd and Gloo it waits for the others, of which one never comes.
  const auto waits = [](pid_t pid) {
    std::error_code gone;
    const std::filesystem::path process = "/proc/" + std::to_string(pid);
    if (std::filesystem::read_symlink(process / "exe", gone).filename() != "e2e_works")
      return false;
    std::filesystem::directory_iterator threads(process / "task", gone);
    return !gone && std::distance(begin(threads), end(threads)) >= 3;
  };
  ASSERT_TRUE(eventually([&] {
    const auto all = processes();
    return std::any_of(all.begin(), all.end(), waits);
  })) << job.err();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
  expect_nobody_left("SIGTERM in hvd::init()");
}

TEST_F(LifetimeTest, ASecondCtrlCKillsWorkersAtOnceThatIgnoreTheFirst) {
  // Without the second one the grace time would outlast the test's time limit.
  Process& job = start_staying(2, {"--ignore-term", "--daemon"}, {"--verbose", "--grace", "3600"});
  job.signal(SIGINT);
  ASSERT_TRUE(job.wait_for_error("SIGINT")) << job.err();
  signal_until(job, SIGINT, "killing what is left");
  EXPECT_EQ(job.wait().code, 130);
  expect_nobody_left("the second Ctrl-C");
}

TEST_F(LifetimeTest, WorkersThatEndInTheirGraceTimeMayStillWrite) {
  Process& job = start({"-np", "1", "sh", "-c",
                        "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"});
  ASSERT_TRUE(job.wait_for_output("up")) << job.err();
  job.signal(SIGTERM);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 143);
  EXPECT_NE(end.out.find("saved"), std::string::npos) << end.out << end.err;
}

TEST_F(LifetimeTest, AWorkersChildIsStoppedLikeTheWorker) {
  // The worker itself is killed; its children have lost their parent.
  Process& job = start_staying(2, {"--ignore-term", "--child", "--daemon"}, {"--grace", "1"});
  const auto workers = wait_for_workers(job, "up", 2);
  ASSERT_EQ(workers.size(), 2U);
  ASSERT_EQ(kill_one(workers.at(1), SIGKILL), 0);
  EXPECT_EQ(job.wait().code, 137);
  expect_nobody_left("a worker's death");
}

}  // namespace
}  // namespace hvd::test
