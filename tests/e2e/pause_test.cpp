// A job that is stopped as a whole goes on as if nothing had been: Ctrl-Z on a real terminal,
// SIGSTOP to hvdrun, SIGSTOP to all of it. All limits are short, and each stop is longer than all
// of them. A hvdrun that was stopped while it waited for others waits on.
#include <array>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine/proc.h"
#include "base/text.h"
#include "tests/e2e/elastic_job.h"
#include "tests/e2e/terminal.h"

namespace hvd::test {
namespace {

// Longer than any limit below; what is tested is that this time passes and nothing happens.
constexpr std::chrono::milliseconds kLongerThanAllLimits{2800};
const Words kShortLimits{"--orphan-timeout",     "1", "--heartbeat-timeout", "0.6",
                         "--collective-timeout", "2"};

Words with_short_limits(const Words& more) {
  Words words = kShortLimits;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class PauseTest : public ElasticJobTest {
 protected:
  // hvdrun is stopped first, so that it does not react to the stop of the others.
  std::vector<pid_t> stop_all(const Process& job) {
    std::vector<pid_t> stopped{job.pid()};
    kill_one(job.pid(), SIGSTOP);
    for (const pid_t pid : processes()) {
      if (pid == job.pid()) continue;
      kill_one(pid, SIGSTOP);
      stopped.push_back(pid);
    }
    EXPECT_TRUE(eventually([&] {
      return std::all_of(stopped.begin(), stopped.end(), [](pid_t pid) { return is_stopped(pid); });
    }));
    return stopped;
  }
  // The last that was stopped first: for a moment the agents and workers find no driver.
  void continue_all(const std::vector<pid_t>& stopped) {
    for (auto pid = stopped.rbegin(); pid != stopped.rend(); ++pid) {
      if (pid + 1 == stopped.rend()) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      kill_one(*pid, SIGCONT);
    }
  }
};

TEST_F(PauseTest, AJobThatIsStoppedAsAWholeGoesOn) {
  Process& job = start(with_short_limits(
      {"-np", "3", binary("e2e_works"), "--steps", "200", "--pause", "10", "--tensors", "20"}));
  wait_for_workers(job, "working", 3);

  const auto stopped = stop_all(job);
  std::this_thread::sleep_for(kLongerThanAllLimits);
  continue_all(stopped);

  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
}

TEST_F(PauseTest, AnElasticJobThatIsStoppedAsAWholeStaysInItsWorld) {
  for (const char* const memory : {"--shared-memory", "--no-shared-memory"}) {
    Process& job = start_training(with_short_limits({"-np", "3", "--min-np", "1", memory,
                                                     "--stall-check-shutdown-time-seconds", "2"}),
                                  {"--step", "0"});
    const auto world = step_logs().wait_for_world(3);
    ASSERT_NE(world, 0) << job.err();

    const auto stopped = stop_all(job);
    step_logs().read();
    std::this_thread::sleep_for(kLongerThanAllLimits);
    continue_all(stopped);

    ASSERT_TRUE(step_logs().wait_for_steps_more(20)) << job.err();
    EXPECT_EQ(step_logs().newest_world(), world) << job.err();
    finish(job);
    std::filesystem::remove(directory() / "enough");
    std::filesystem::remove_all(directory() / "step_logs");
    step_logs() = StepLogs({directory() / "step_logs"});
  }
}

TEST_F(PauseTest, AStoppedHvdrunCostsNothingOnItsOwnMachine) {
  Process& job = start_training(with_short_limits({"-np", "2", "--min-np", "1"}));
  const auto world = step_logs().wait_for_world(2);
  ASSERT_NE(world, 0) << job.err();

  job.signal(SIGSTOP);
  std::this_thread::sleep_for(kLongerThanAllLimits);
  job.signal(SIGCONT);

  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << job.err();
  EXPECT_EQ(step_logs().newest_world(), world) << job.err();
  const ExitStatus end = finish(job);
  EXPECT_NE(end.err.find("hvdrun was stopped"), std::string::npos) << end.err;
}

// ---- hvdrun is stopped while it waits ----

class HoldUpTest : public PauseTest {
 protected:
  std::string until_there(const std::string& file) const {
    return cat("while [ ! -e ", (directory() / file).string(), " ]; do sleep 0.05; done");
  }
  // The agent of this machine answers once there is a file "answer".
  Process& start_with_slow_agent(const Words& words) {
    const std::string agent = directory_file(
        "agent",
        cat("#!/bin/sh\n", until_there("answer"), "\nexec ", binary("hvd-agent"), " \"$@\"\n"));
    std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
    ProcessOptions options;
    options.environment["HVD_AGENT"] = agent;
    return start(with_short_limits(words), std::move(options));
  }
  // Rank 1 calls hvd::init() once there is a file "call".
  Words late_in_init() const {
    return {"sh", "-c",
            cat("if [ $HVD_WORKER = localhost#1 ]; then ", until_there("call"), "; fi; exec ",
                binary("e2e_works"), " --steps 3")};
  }
  // For longer than the limits of these tests; meanwhile there is such a file.
  void hold_up(Process& job, const std::string& file) {
    job.signal(SIGSTOP);
    std::this_thread::sleep_for(kHoldUp / 2);
    directory_file(file);
    std::this_thread::sleep_for(kHoldUp / 2);
    job.signal(SIGCONT);
  }

  static constexpr std::chrono::seconds kHoldUp{8};
};

TEST_F(HoldUpTest, NightlyTheStartTimeoutDoesNotCountIt) {
  for (const Words& kind : {Words{}, Words{"--min-np", "2"}}) {
    Words words{"--verbose", "--start-timeout", "5", "-np", "2"};
    words.insert(words.end(), kind.begin(), kind.end());
    words.insert(words.end(), {binary("e2e_works"), "--steps", "3"});
    Process& job = start_with_slow_agent(words);
    ASSERT_TRUE(eventually([&] { return !children_named(job.pid(), "agent").empty(); }));
    hold_up(job, "answer");
    const ExitStatus end = job.wait();
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_NE(end.err.find("hvdrun was held up for "), std::string::npos) << end.err;
    std::filesystem::remove(directory() / "answer");
  }
}

TEST_F(HoldUpTest, WithoutOneTheStartTimeoutIsWhatItIs) {
  Process& job = start_with_slow_agent(
      {"--start-timeout", "2", "-np", "2", binary("e2e_works"), "--steps", "3"});
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("(--start-timeout)"), std::string::npos) << end.err;
}

TEST_F(HoldUpTest, TheInitTimeoutDoesNotCountIt) {
  Words words = with_short_limits({"--init-timeout", "5", "-np", "2"});
  const Words program = late_in_init();
  words.insert(words.end(), program.begin(), program.end());
  Process& job = start(words);
  ASSERT_TRUE(job.wait_for_error("has not called hvd::init")) << job.err();
  hold_up(job, "call");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
}

TEST_F(HoldUpTest, WithoutOneTheInitTimeoutIsWhatItIs) {
  Words words = with_short_limits({"--init-timeout", "2", "-np", "2"});
  const Words program = late_in_init();
  words.insert(words.end(), program.begin(), program.end());
  const ExitStatus end = run_job(words);
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.err.find("(--init-timeout)"), std::string::npos) << end.err;
}

// ---- and killed ----

TEST_F(PauseTest, AStoppedHvdrunThatIsKilledLeavesNoProcess) {
  Process& job = start(with_short_limits({"-np", "2", binary("e2e_stays"), "--ignore-term"}));
  wait_for_workers(job, "up", 2);
  job.signal(SIGSTOP);
  std::this_thread::sleep_for(kLongerThanAllLimits / 2);
  EXPECT_GE(processes().size(), 4U);
  crash(job);
  expect_nobody_left("kill -9 of a stopped hvdrun");
}

TEST_F(PauseTest, CtrlZGivesTheCoresBackAndFgGoesOn) {
  Terminal terminal({{"HVD_E2E_MARK", mark()}});
  const Words words =
      with_short_limits({"-np", "2", binary("e2e_works"), "--steps", "200", "--pause", "10"});
  terminal.type(cat(binary("hvdrun"), " ", join(words, " "), "\n"));
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(terminal.wait_for(cat(" working ", rank, "."))) << terminal.screen();
  }
  const auto workers = [this] {
    std::vector<pid_t> found;
    for (const pid_t pid : processes()) {
      if (trim(read_proc_file(cat("/proc/", pid, "/comm"))) == "e2e_works") found.push_back(pid);
    }
    return found;
  }();
  ASSERT_EQ(workers.size(), 2U);

  terminal.type("\x1a");
  ASSERT_TRUE(terminal.wait_for("Stopped")) << terminal.screen();
  EXPECT_NE(terminal.screen().find("fg or bg lets the job go on"), std::string::npos)
      << terminal.screen();
  EXPECT_TRUE(eventually([&] { return is_stopped(workers[0]) && is_stopped(workers[1]); },
                         std::chrono::seconds(5)));
  std::this_thread::sleep_for(kLongerThanAllLimits);
  terminal.type("fg; echo code=$?.\n");
  ASSERT_TRUE(terminal.wait_for("the job goes on after it was stopped for ")) << terminal.screen();
  ASSERT_TRUE(terminal.wait_for("code=0.")) << terminal.screen();
  terminal.type("exit\n");
}

TEST_F(PauseTest, CtrlZStopsTheTimeForWhichAJobWaitsForHosts) {
  const auto script = directory() / "discover.sh";
  std::ofstream(script) << "#!/bin/sh\ncat " << (directory() / "hosts").string() << " || true\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  Terminal terminal({{"HVD_E2E_MARK", mark()}});
  terminal.type(cat(binary("hvdrun"),
                    " --elastic-timeout 5 --min-np 1 --verbose --host-discovery-script ",
                    script.string(), " /bin/true; echo code=$?.\n"));
  ASSERT_TRUE(terminal.wait_for("waiting for")) << terminal.screen();
  terminal.type("\x1a");
  ASSERT_TRUE(terminal.wait_for("Stopped")) << terminal.screen();
  std::this_thread::sleep_for(std::chrono::seconds(6));
  std::ofstream(directory() / "hosts") << "localhost:1\n";
  terminal.type("fg; echo code=$?.\n");
  ASSERT_TRUE(terminal.wait_for("code=0.")) << terminal.screen();
  terminal.type("exit\n");
}

// The system does not stop an orphaned process group, which no shell could continue: both ways the
// job goes on.
TEST_F(PauseTest, SigtstpFromElsewhereStopsTheJobUntilSigcont) {
  Process& job =
      start(with_short_limits({"-np", "2", binary("e2e_works"), "--steps", "50", "--pause", "10"}));
  wait_for_workers(job, "working", 2);
  job.signal(SIGTSTP);
  ASSERT_TRUE(job.wait_for_error("fg or bg lets the job go on")) << job.err();
  const TimePoint until = Clock::now() + kGenerous;
  while (!job.wait_for_error("the job goes on", std::chrono::milliseconds(20))) {
    ASSERT_LT(Clock::now(), until) << job.err();
    if (is_stopped(job.pid())) job.signal(SIGCONT);
  }
  EXPECT_EQ(job.wait().code, 0);
}

}  // namespace
}  // namespace hvd::test
