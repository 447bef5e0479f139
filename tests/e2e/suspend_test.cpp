// A job that is told to end so that it can be taken up again, with --state-file, and the job that
// takes it up.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

constexpr int kSuspended = 75;

class SuspendTest : public ElasticJobTest {
 protected:
  Process& train(const Words& flags, const Words& program_flags = {}) {
    Words words{"--state-file", state_file_};
    words.insert(words.end(), flags.begin(), flags.end());
    return start_training(words, program_flags);
  }
  static ExitStatus suspend(Process& job) {
    job.signal(SIGTERM);
    return job.wait();
  }

  // After steps that follow all those in the step logs.
  int suspend_after_steps(Process& job) {
    step_logs().read();
    EXPECT_TRUE(step_logs().wait_for_steps_more(5)) << job.err();
    return suspend(job).code;
  }

  const std::string state_file_ = (directory() / "state").string();
  const std::string lock_file_ = state_file_ + ".lock";
};

TEST_F(SuspendTest, TheSameCommandGoesOnFromTheCommitAtWhichAllLeft) {
  Process& first = train({"-np", "3", "--min-np", "2"});
  ASSERT_TRUE(step_logs().wait_for_step(20)) << first.err();
  const ExitStatus end = suspend(first);
  EXPECT_EQ(end.code, kSuspended) << end.err;
  EXPECT_NE(end.err.find("the job ends at its next commit"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find(cat("its state is in ", state_file_, ", and the same command goes on")),
            std::string::npos)
      << end.err;
  expect_nobody_left("the suspended job");
  step_logs().read();
  const std::int64_t reached = step_logs().newest_step();

  // The step logs of both are one history: no step is lost, and none is done twice.
  Process& second = train({"-np", "2", "--min-np", "1"});
  ASSERT_TRUE(step_logs().wait_for_step(reached + 10)) << second.err();
  finish(second);
  EXPECT_EQ(step_logs().steps_done_again(), 0);
  EXPECT_FALSE(std::filesystem::exists(state_file_)) << "it would mislead the next job";
  EXPECT_FALSE(std::filesystem::exists(lock_file_));
}

TEST_F(SuspendTest, AStateThatIsOnlyMarkedIsKeptToo) {
  Process& first = train({"-np", "2", "--min-np", "1"}, {"--mark"});
  ASSERT_TRUE(step_logs().wait_for_step(20)) << first.err();
  const ExitStatus end = suspend(first);
  EXPECT_EQ(end.code, kSuspended) << end.err;

  Process& second = train({"-np", "2", "--min-np", "1"}, {"--mark"});
  ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << second.err();
  finish(second);
}

TEST_F(SuspendTest, AWorkerThatDiesOnTheWayChangesNothing) {
  Process& first = train({"-np", "4", "--min-np", "4"}, {"--step", "200000"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << first.err();
  first.signal(SIGTERM);
  ASSERT_TRUE(first.wait_for_error("the job ends at its next commit"));
  kill_rank(0);
  const ExitStatus end = first.wait();
  EXPECT_EQ(end.code, kSuspended) << end.err;
  EXPECT_EQ(end.err.find("is started again"), std::string::npos) << end.err;

  Process& second = train({"-np", "4", "--min-np", "1"});
  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << second.err();
  finish(second);
}

TEST_F(SuspendTest, ASecondSignalStopsTheJobAtOnce) {
  Process& job = train({"-np", "2", "--min-np", "1", "--grace", "1"}, {"--step", "20000000"});
  ASSERT_TRUE(step_logs().wait([&] {
    step_logs().read();
    return step_logs().members().size() == 2;
  })) << job.err();
  job.signal(SIGTERM);
  ASSERT_TRUE(job.wait_for_error("a second signal stops it at once")) << job.err();
  signal_until(job, SIGTERM, "interrupted by SIGTERM");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 128 + SIGTERM) << end.err;
  EXPECT_FALSE(std::filesystem::exists(state_file_));
}

// As timeout(1) does it: by the process id, and with the group. On a busy machine the second one
// may come so late that it counts, and the test tries again.
TEST_F(SuspendTest, TheSameSignalTwiceInARowSuspendsToo) {
  constexpr std::chrono::milliseconds kSurelyInTime{100};
  constexpr int kAttempts = 20;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Process& job = train({"-np", "1", "--min-np", "1"}, {"--step", "200000"});
    ASSERT_TRUE(step_logs().wait_for_steps_more(1)) << job.err();
    const auto start = std::chrono::steady_clock::now();
    job.signal(SIGTERM);
    ASSERT_TRUE(job.wait_for_error("the job ends at its next commit")) << job.err();
    job.signal(SIGTERM);
    const auto passed = std::chrono::steady_clock::now() - start;
    const ExitStatus end = job.wait();
    // It was sent in time, and hvdrun came to it too late.
    if (passed >= kSurelyInTime || end.code == 128 + SIGTERM) continue;
    EXPECT_EQ(end.code, kSuspended) << end.err;
    EXPECT_TRUE(std::filesystem::exists(state_file_));
    return;
  }
  ADD_FAILURE() << "no second signal came in time";
}

TEST_F(SuspendTest, AJobThatComesToNoCommitIsStopped) {
  Process& job = train({"-np", "2", "--min-np", "1", "--grace", "1", "--leave-grace", "0.3"},
                       {"--step", "20000000"});
  ASSERT_TRUE(step_logs().wait([&] {
    step_logs().read();
    return step_logs().members().size() == 2;
  })) << job.err();
  const ExitStatus end = suspend(job);
  EXPECT_EQ(end.code, 128 + SIGTERM) << end.err;
  EXPECT_NE(end.err.find("the job came to no commit within 0.3 s (--leave-grace)"),
            std::string::npos)
      << end.err;
}

// ---- a disk that is slow, or bad (tests/support/bad_files.c) ----

class SuspendToBadDisk : public SuspendTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(disk_);
    ::setenv("LD_PRELOAD", HVD_BAD_FILES, 1);
    ::setenv("BAD_FILES", disk_.c_str(), 1);
  }
  void TearDown() override {
    for (const char* const name : {"LD_PRELOAD", "BAD_FILES"}) ::unsetenv(name);
    SuspendTest::TearDown();
  }

  // Of a job that works until the disk goes bad.
  ExitStatus suspend_to(const std::string& mode, const Words& flags = {}) {
    Words words{"-np", "2", "--min-np", "1", "--state-file", state_};
    words.insert(words.end(), flags.begin(), flags.end());
    Process& job = start_training(words);
    EXPECT_TRUE(step_logs().wait_for_step(5)) << job.err();
    directory_file("disk.mode", mode);
    return suspend(job);
  }

  const std::filesystem::path disk_ = directory() / "disk";
  const std::string state_ = (disk_ / "state").string();
};

// The time for a commit is not the time for writing.
TEST_F(SuspendToBadDisk, ASlowDiskIsWaitedFor) {
  const ExitStatus end = suspend_to("slow 6000", {"--leave-grace", "1"});
  EXPECT_EQ(end.code, kSuspended) << end.err;
  EXPECT_NE(end.err.find("all have committed, and rank 0 on localhost#0 writes the state"),
            std::string::npos)
      << end.err;
  EXPECT_EQ(end.err.find("came to no commit"), std::string::npos) << end.err;
  EXPECT_TRUE(std::filesystem::exists(state_));
}

TEST_F(SuspendToBadDisk, AFullDiskEndsTheJobAtOnceWithTheReason) {
  const ExitStatus end = suspend_to("full", {"--leave-grace", "600"});
  EXPECT_EQ(end.code, 1) << end.err;
  EXPECT_NE(end.err.find(cat("could not keep the state in ", state_, ": write: No space left")),
            std::string::npos)
      << end.err;
  EXPECT_EQ(end.err.find("is started again"), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("generation 2"), std::string::npos) << end.err;
  EXPECT_FALSE(std::filesystem::exists(state_));
}

// The file is complete: that is no failure.
TEST_F(SuspendToBadDisk, ADirectoryThatCannotBeSyncedIsAWarning) {
  const ExitStatus end = suspend_to("no-sync");
  EXPECT_EQ(end.code, kSuspended) << end.err;
  EXPECT_NE(
      end.err.find(cat("the state is in ", state_, ", but a crash of the machine may lose it")),
      std::string::npos)
      << end.err;
  EXPECT_TRUE(std::filesystem::exists(state_));
}

TEST_F(SuspendTest, AStateThatCannotBeKeptIsAnErrorThatNamesTheFile) {
  const auto folder = directory() / "folder";
  const std::string nowhere = (folder / "state").string();
  std::filesystem::create_directory(folder);
  Process& job = start_training({"-np", "2", "--min-np", "1", "--state-file", nowhere});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << job.err();
  std::filesystem::remove_all(folder);
  const ExitStatus end = suspend(job);
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.code, kSuspended) << end.err;
  EXPECT_NE(end.err.find(cat("keep the state in ", nowhere, ": open directory ")),
            std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find("No such file or directory"), std::string::npos) << end.err;
}

TEST_F(SuspendTest, AJobWhoseStateCannotBeKeptDoesNotBegin) {
  const std::string nowhere = (directory() / "no such folder" / "state").string();
  Process& job = start_training({"-np", "2", "--min-np", "1", "--state-file", nowhere});
  const ExitStatus end = job.wait(std::chrono::seconds(60));
  EXPECT_EQ(end.code, 1) << end.err;
  EXPECT_NE(end.err.find(cat("rank 0 could not keep the state in ", nowhere, ": open lock ")),
            std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find("No such file or directory"), std::string::npos) << end.err;
}

// ---- two jobs with one file ----

TEST_F(SuspendTest, AFileThatAnotherJobUsesIsRefusedUntilThatJobHasEnded) {
  Process& first = train({"-np", "2", "--min-np", "1"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << first.err();
  const ExitStatus refused = train({"-np", "2", "--min-np", "1"}).wait();
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_NE(refused.err.find(cat("keep the state in ", state_file_, ": it is in use by job ")),
            std::string::npos)
      << refused.err;

  EXPECT_EQ(suspend(first).code, kSuspended) << first.err();
  EXPECT_TRUE(std::filesystem::exists(state_file_));
  EXPECT_FALSE(std::filesystem::exists(lock_file_));
  Process& next = train({"-np", "2", "--min-np", "1"});
  EXPECT_EQ(suspend_after_steps(next), kSuspended) << next.err();
}

// Another rank 0 takes the lock, and is not hindered by that of its own job.
TEST_F(SuspendTest, AJobKeepsItsFileWhenRank0Dies) {
  Process& first = train({"-np", "2", "--min-np", "1"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << first.err();
  kill_rank(0);
  step_logs().read();
  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << first.err();
  EXPECT_EQ(train({"-np", "1", "--min-np", "1"}).wait().code, 1);
  EXPECT_EQ(suspend(first).code, kSuspended) << first.err();
  EXPECT_FALSE(std::filesystem::exists(lock_file_));
}

TEST_F(SuspendTest, AJobThatWasKilledLeavesNoObstacle) {
  Process& first = train({"-np", "1", "--min-np", "1"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << first.err();
  crash(first);
  expect_nobody_left("kill -9 of hvdrun");
  EXPECT_TRUE(std::filesystem::exists(lock_file_));
  Process& second = train({"-np", "1", "--min-np", "1"});
  EXPECT_EQ(suspend_after_steps(second), kSuspended) << second.err();
  EXPECT_FALSE(std::filesystem::exists(lock_file_));
}

// Each is refused, and stays as it is.
TEST_F(SuspendTest, AFileThatIsNoStateOfThisProgramIsRefused) {
  Process& other = train({"-np", "1", "--min-np", "1"}, {"--mark"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << other.err();
  ASSERT_EQ(suspend(other).code, kSuspended);
  const std::string of_another = read_file(state_file_);
  std::string damaged = of_another;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] + 1);

  struct Case {
    std::string content;
    Words program_flags;
    std::string said;
  };
  for (const Case& one : {Case{"not a state at all, but longer than the head", {}, "not the state"},
                          Case{"", {}, "it is cut off"},
                          Case{of_another, {}, "it holds the state of another program"},
                          Case{damaged, {"--mark"}, "its checksum is wrong"},
                          Case{of_another.substr(0, 500), {"--mark"}, "it is cut off"}}) {
    std::filesystem::remove(state_file_);
    directory_file("state", one.content);
    Process& job = train({"-np", "2", "--min-np", "1"}, one.program_flags);
    const ExitStatus end = job.wait();
    EXPECT_NE(end.code, 0) << one.said;
    EXPECT_NE(end.err.find(cat("read the state file ", state_file_, ": ")), std::string::npos)
        << end.err;
    EXPECT_NE(end.err.find(one.said), std::string::npos) << end.err;
    EXPECT_EQ(read_file(state_file_), one.content);
    EXPECT_FALSE(std::filesystem::exists(lock_file_));
  }
}

TEST_F(SuspendTest, AFileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  directory_file("state", "anything");
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(::chown(state_file_.c_str(), kNobody, kNobody), 0);
  const ExitStatus end = train({"-np", "1", "--min-np", "1"}).wait();
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.err.find("belongs to user 65534"), std::string::npos) << end.err;
}

}  // namespace
}  // namespace hvd::test
