// Signals, stops and kills: nothing of a worker is left, whatever it did to stay.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

std::vector<pid_t> alive(const AgentUnderTest& agent) {
  return processes_with_variable(AgentUnderTest::kMark, agent.mark());
}

// Only the agent itself is left: no worker, no reaper.
bool only_the_agent(const AgentUnderTest& agent) {
  return eventually([&] { return alive(agent) == std::vector<pid_t>{agent.pid()}; });
}

bool exists(pid_t pid) {
  const std::string stat = read_file(cat("/proc/", pid, "/stat"));
  const auto close = stat.rfind(')');
  return close != std::string::npos && stat[close + 2] != 'Z' && stat[close + 2] != 'X';
}

bool until_ready(AgentUnderTest& agent, agent_link::Incarnation incarnation) {
  return agent.until([&] { return agent.of(incarnation).out.find('\n') != std::string::npos; });
}

TEST(AgentTree, SendsSignalsToTheWholeGroup) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"children", "3"});
  ASSERT_TRUE(until_ready(agent, 1));
  agent.send(agent_link::Signal{1, SIGHUP}.encode());
  ASSERT_TRUE(agent.until_over(1));  // the streams close only when the children are gone, too
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGHUP);
  EXPECT_TRUE(only_the_agent(agent));
}

TEST(AgentTree, HoldsBackASignalUntilTheProgramRuns) {
  AgentUnderTest agent;
  agent.send(agent.launch_of(1, {"sleep", "1000"}).encode() +
             agent_link::Signal{1, SIGHUP}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGHUP);
}

TEST(AgentTree, SignalsEveryWorkerWhenNoneIsNamed) {
  AgentUnderTest agent;
  for (agent_link::Incarnation i = 1; i <= 3; ++i) agent.launch(i, {"sleep", "1000"});
  agent.send(agent_link::Signal{agent_link::kAllWorkers, SIGTERM}.encode());
  for (agent_link::Incarnation i = 1; i <= 3; ++i) {
    ASSERT_TRUE(agent.until_over(i));
    EXPECT_EQ(agent.of(i).exited->signal_number, SIGTERM);
  }
}

TEST(AgentTree, ReachesTheGroupOfAWorkerThatHasExited) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"leave-child"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).exited.has_value(); }));
  agent.send(agent_link::Signal{1, SIGTERM}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_TRUE(only_the_agent(agent));
}

TEST(AgentTree, KillsForkedChildren) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"children", "20"});
  ASSERT_TRUE(until_ready(agent, 1));
  EXPECT_GE(alive(agent).size(), 22U);
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
  EXPECT_TRUE(only_the_agent(agent));
}

TEST(AgentTree, KillsLeftoversOfAWorkerBeforeAnotherTakesItsPlace) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"daemon-and-exit"});
  agent.launch_mode(2, {"daemon-and-exit"});
  for (const agent_link::Incarnation i : {1, 2}) {
    ASSERT_TRUE(until_ready(agent, i));
    ASSERT_TRUE(agent.until([&] { return agent.of(i).exited.has_value(); }));
  }
  const pid_t first = number_after(agent.of(1).out, "daemon ");
  const pid_t second = number_after(agent.of(2).out, "daemon ");
  ASSERT_TRUE(exists(first));

  auto launch = agent.launch_of(3, {"sh", "-c", cat("test -e /proc/", first, " || echo gone")});
  launch.worker = agent.launch_of(1, {}).worker;
  agent.send(launch.encode());
  ASSERT_TRUE(agent.until_over(3));
  EXPECT_EQ(agent.of(3).out, "gone\n");
  EXPECT_TRUE(exists(second)) << "no worker has taken the place of the second";
}

TEST(AgentTree, GivesProcessesOfAStoppedWorkerTheirGraceBeforeAnotherTakesItsPlace) {
  AgentUnderTest agent;
  // The child takes its time after the signal of which its worker has died.
  agent.launch(1, {"sh", "-c",
                   "(trap '' TERM; echo ready; until test -e go; do sleep 0.01; done; : >saved) & "
                   "exec sleep 1000"});
  ASSERT_TRUE(until_ready(agent, 1));
  agent.send(agent_link::Stop{1, 9'000, "the test stops it"}.encode());
  ASSERT_TRUE(agent.until([&] { return agent.of(1).exited.has_value(); }));

  auto launch = agent.launch_of(2, {"sh", "-c", "test -e saved && echo saved"});
  launch.worker = agent.launch_of(1, {}).worker;
  agent.send(launch.encode());
  agent.beat();
  ASSERT_TRUE(agent.until([&] { return !agent.acks.empty(); }));  // it has taken the launch
  std::ofstream(agent.directory().path() / "go").flush();
  ASSERT_TRUE(agent.until_over(2));
  EXPECT_EQ(agent.of(2).out, "saved\n");
}

TEST(AgentTree, KillsADaemonWithItsOwnWorkerAndNoOther) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"daemon"});
  agent.launch_mode(2, {"daemon"});
  ASSERT_TRUE(until_ready(agent, 1));
  ASSERT_TRUE(until_ready(agent, 2));
  const pid_t first = number_after(agent.of(1).out, "daemon ");
  const pid_t second = number_after(agent.of(2).out, "daemon ");
  ASSERT_TRUE(exists(first));
  ASSERT_TRUE(exists(second));
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_TRUE(eventually([&] { return !exists(first); }));
  EXPECT_TRUE(exists(second));
  agent.send(agent_link::Shutdown{}.encode());
  agent.until_closed();
  EXPECT_FALSE(exists(second));  // gone before the agent said bye
}

TEST(AgentTree, FindsADaemonWhoseWorkerHasExited) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"daemon-and-exit"});
  ASSERT_TRUE(agent.until_over(1));  // the daemon closed its streams
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  ASSERT_TRUE(exists(daemon));
  agent.send(agent_link::Kill{1}.encode());
  EXPECT_TRUE(eventually([&] { return !exists(daemon); }));
}

TEST(AgentTree, KillsStoppedProcesses) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stopped-child"});
  ASSERT_TRUE(until_ready(agent, 1));
  const pid_t child = number_after(agent.of(1).out, "stopped ");
  agent.send(agent_link::Signal{1, SIGSTOP}.encode());
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
  // A dying process closes its files before it is gone.
  EXPECT_TRUE(eventually([&] { return !exists(child); }));
}

TEST(AgentTree, CatchesProcessesThatRunAway) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"runners", "6"});
  ASSERT_TRUE(until_ready(agent, 1));
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).out, "ready\n");
  EXPECT_TRUE(only_the_agent(agent));
}

TEST(AgentTree, StopAnnouncesThenSignals) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"until-told-to-stop"});
  ASSERT_TRUE(until_ready(agent, 1));
  agent.send(agent_link::Stop{1, 600'000, "the job is over"}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->exit_code, 0);
  EXPECT_NE(agent.of(1).out.find("SIGTERM after: the job is over"), std::string::npos)
      << agent.of(1).out;
}

TEST(AgentTree, APlainSignalIsNoStop) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"until-told-to-stop"});
  ASSERT_TRUE(until_ready(agent, 1));
  agent.send(agent_link::Signal{1, SIGTERM}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_NE(agent.of(1).out.find("SIGTERM without announcement"), std::string::npos);
}

TEST(AgentTree, StopKillsWorkersThatIgnoreItAfterTheGrace) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay-stubbornly"});
  ASSERT_TRUE(until_ready(agent, 1));
  agent.send(agent_link::Stop{1, 50, "enough"}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
  EXPECT_TRUE(only_the_agent(agent));
}

TEST(AgentTree, StopWithoutGraceKillsAtOnce) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"until-told-to-stop"});
  ASSERT_TRUE(until_ready(agent, 1));
  agent.send(agent_link::Stop{1, 0, "now"}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
}

TEST(AgentTree, ASecondStopCanOnlyShortenTheGrace) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay-stubbornly"});
  ASSERT_TRUE(until_ready(agent, 1));
  agent.send(agent_link::Stop{1, 600'000, "soon"}.encode() +
             agent_link::Stop{1, 20, "now"}.encode() +
             agent_link::Stop{1, 600'000, "later"}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
}

TEST(AgentTree, EndOfTheLinkKillsEverything) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay-stubbornly"});
  agent.launch_mode(2, {"daemon"});
  agent.launch_mode(3, {"runners", "2"});
  for (agent_link::Incarnation i = 1; i <= 3; ++i) ASSERT_TRUE(until_ready(agent, i));
  const pid_t daemon = number_after(agent.of(2).out, "daemon ");
  ASSERT_TRUE(exists(daemon));
  agent.close_link();
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_FALSE(exists(daemon));
  EXPECT_TRUE(alive(agent).empty());
}

TEST(AgentTree, NothingSurvivesAKilledAgent) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay-stubbornly"});
  agent.launch_mode(2, {"daemon"});
  ASSERT_TRUE(until_ready(agent, 1));
  ASSERT_TRUE(until_ready(agent, 2));
  const pid_t daemon = number_after(agent.of(2).out, "daemon ");
  ASSERT_TRUE(exists(daemon));
  ::kill(agent.pid(), SIGKILL);
  EXPECT_EQ(agent.wait_for_exit(), -SIGKILL);
  EXPECT_TRUE(wait_until_gone(AgentUnderTest::kMark, agent.mark()));
  EXPECT_TRUE(eventually([&] { return !exists(daemon); }));
}

TEST(AgentTree, NothingSurvivesAKilledReaperAndTheWorkersEndIsTold) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"daemon"});
  agent.launch_mode(2, {"stay-stubbornly"});
  ASSERT_TRUE(until_ready(agent, 1));
  ASSERT_TRUE(until_ready(agent, 2));
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  const std::string status = read_file(cat("/proc/", agent.of(1).pid, "/status"));
  const pid_t reaper = number_after(status, "PPid:\t");
  ASSERT_GT(reaper, 1);
  ASSERT_NE(reaper, agent.pid());
  ::kill(reaper, SIGKILL);
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !exists(daemon); }));
  EXPECT_TRUE(exists(agent.of(2).pid));  // another's tree is not touched
}

TEST(AgentTree, LeavesNoZombies) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"daemon-and-exit"});
  agent.launch(2, {"sh", "-c", "(sleep 0.01 &) ; exit 0"});
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_TRUE(agent.until_over(2));
  agent.send(agent_link::Kill{agent_link::kAllWorkers}.encode());
  // Reapers included: the agent has no child left at all, not even a dead one.
  EXPECT_TRUE(eventually([&] {
    const auto result =
        run({"sh", "-c", cat("grep -l '^PPid:.", agent.pid(), "$' /proc/[0-9]*/status")});
    return result.out.empty();
  }));
}

TEST(AgentTree, ASigtermToTheAgentStopsItsWorkersPolitely) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"until-told-to-stop"});
  ASSERT_TRUE(until_ready(agent, 1));
  ::kill(agent.pid(), SIGTERM);
  agent.until_closed();
  EXPECT_NE(agent.of(1).out.find("SIGTERM after: the agent was told to end"), std::string::npos);
  ASSERT_TRUE(agent.of(1).over());
  EXPECT_EQ(agent.of(1).exited->exit_code, 0);
  EXPECT_TRUE(agent.bye);
  ASSERT_FALSE(agent.problems.empty());
  EXPECT_NE(agent.problems[0].find("told to end by signal 15"), std::string::npos);
  EXPECT_EQ(agent.wait_for_exit(), 128 + SIGTERM);
}

TEST(AgentTree, ItsWorkersGetTheGraceOfTheJob) {
  AgentOptions options;
  options.hello.grace_ms = 0;
  AgentUnderTest agent(options);
  agent.launch_mode(1, {"until-told-to-stop"});
  ASSERT_TRUE(until_ready(agent, 1));
  ::kill(agent.pid(), SIGTERM);
  agent.until_closed();
  ASSERT_TRUE(agent.of(1).over());
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
  EXPECT_EQ(agent.of(1).out, "ready\n");
}

TEST(AgentTree, InAnElasticJobTheFirstSigtermIsANoticeAndTheSecondTheEnd) {
  AgentOptions options;
  options.hello.elastic = true;
  AgentUnderTest agent(options);
  agent.launch_mode(1, {"until-told-to-stop"});
  ASSERT_TRUE(until_ready(agent, 1));
  ::kill(agent.pid(), SIGTERM);
  ASSERT_TRUE(agent.until([&] { return agent.host_leaves == 1; }));
  // It serves on, and its worker was told nothing.
  agent.launch_mode(2, {"until-told-to-stop"});
  ASSERT_TRUE(until_ready(agent, 2));
  EXPECT_EQ(agent.of(1).out, "ready\n");
  EXPECT_TRUE(agent.problems.empty());
  // For two seconds it is the same notice, which a batch system and a parent have both passed on.
  const auto told_at = std::chrono::steady_clock::now();
  ASSERT_TRUE(eventually([&] {
    ::kill(agent.pid(), SIGTERM);
    agent.take_in_what_is_there();
    return !agent.problems.empty();
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - told_at, std::chrono::milliseconds(1'500));
  agent.until_closed();
  EXPECT_EQ(agent.host_leaves, 1);
  for (const agent_link::Incarnation worker : {1, 2}) {
    EXPECT_NE(agent.of(worker).out.find("SIGTERM after: the agent was told to end"),
              std::string::npos);
    EXPECT_TRUE(agent.of(worker).over());
  }
  EXPECT_EQ(agent.wait_for_exit(), 128 + SIGTERM);
}

}  // namespace
}  // namespace hvd::test
