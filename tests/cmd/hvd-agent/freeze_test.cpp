// A lease that runs out, with real workers: all their processes are stopped, go on when the lease
// is renewed, and can be ended meanwhile.
#include <algorithm>
#include <csignal>
#include <gtest/gtest.h>

#include "base/machine/proc.h"
#include "base/text.h"
#include "cmd/hvd-agent/process_tree.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

using agent::Descendant;

// Short, so that the tests are; as long as a test beats, it is renewed again and again.
AgentOptions with_lease(std::uint32_t lease_ms, std::uint32_t orphan_timeout_ms = 0) {
  AgentOptions options;
  options.hello.lease_ms = lease_ms;
  options.hello.orphan_timeout_ms = orphan_timeout_ms;
  return options;
}

// Everything of every worker, daemons too; no reapers.
std::vector<pid_t> processes_of_workers(const AgentUnderTest& agent) {
  std::vector<pid_t> found;
  for (const Descendant& process : agent::descendants_of(agent.pid())) {
    if (process.parent != agent.pid() && !is_gone(process.pid)) found.push_back(process.pid);
  }
  return found;
}

bool all_are_frozen(const AgentUnderTest& agent) {
  const auto found = processes_of_workers(agent);
  return std::all_of(found.begin(), found.end(), [](pid_t pid) { return state_of(pid) == 'T'; });
}

// Says nothing to the agent until its workers stand still.
// A child that is born while the list is made may be missing from it. So the list has to be the
// same after all its processes were seen frozen.
bool freezes(const AgentUnderTest& agent) {
  return eventually([&] {
    const auto before = processes_of_workers(agent);
    return all_are_frozen(agent) && processes_of_workers(agent) == before;
  });
}

bool beats_until_ready(AgentUnderTest& agent, agent_link::Incarnation incarnation) {
  return agent.until_beating(
      [&] { return agent.of(incarnation).out.find('\n') != std::string::npos; });
}

pid_t reaper_of(pid_t worker) { return parent_of(worker).value_or(0); }

TEST(AgentLease, FreezesEverythingThatDescendsFromAWorker) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"daemon"});
  agent.launch_mode(2, {"daemon-and-exit"});
  agent.launch_mode(3, {"children", "5"});
  agent.launch_mode(4, {"tick"});
  for (agent_link::Incarnation i = 1; i <= 4; ++i) ASSERT_TRUE(beats_until_ready(agent, i));
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  const pid_t orphan = number_after(agent.of(2).out, "daemon ");

  ASSERT_TRUE(freezes(agent));
  EXPECT_EQ(state_of(daemon), 'T');
  EXPECT_EQ(state_of(orphan), 'T');
  EXPECT_EQ(processes_of_workers(agent).size(), 2U + 1U + 6U + 1U);
  EXPECT_NE(state_of(agent.pid()), 'T');
}

// A look at the tree may miss a process whose parent ends just then, and so may the next one; not
// many in a row.
bool stand_still(const AgentUnderTest& agent, const std::vector<pid_t>& processes) {
  for (int look = 0; look < 30; ++look) {
    if (!all_are_frozen(agent) || processes_of_workers(agent) != processes) return false;
  }
  return true;
}

TEST(AgentLease, CatchesProcessesThatRunAway) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"runners", "4"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  EXPECT_TRUE(eventually([&] {
    const auto caught = processes_of_workers(agent);
    // Of a runner also the one before, if it had not ended yet.
    return caught.size() >= 5 && stand_still(agent, caught);
  }));
  EXPECT_EQ(agent.of(1).out, "ready\n");
}

TEST(AgentLease, LetsThemGoOnWhenItIsRenewedAndSaysHowLongTheyStoodStill) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"tick"});
  agent.launch_mode(2, {"daemon"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(beats_until_ready(agent, 2));
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(freezes(agent));
    agent.take_in_what_is_there();  // from here on more of it means that the worker runs
    const std::size_t said = agent.of(1).out.size();
    agent.problems.clear();
    ASSERT_TRUE(agent.until_beating(
        [&] { return agent.of(1).out.size() > said && !agent.problems.empty(); }));
    EXPECT_NE(
        agent.problems[0].find(cat("the workers on ", agent.ready->host_name, " were frozen for ")),
        std::string::npos)
        << agent.problems[0];
    EXPECT_NE(agent.problems[0].find(" s: the link was silent"), std::string::npos);
    const pid_t daemon = number_after(agent.of(2).out, "daemon ");
    ASSERT_TRUE(agent.until_beating([&] { return state_of(daemon) != 'T'; }));
  }
}

TEST(AgentLease, RunsOutAlsoWhileHeartbeatsComeThatNameNoNewAnswer) {
  AgentUnderTest agent(with_lease(300));
  agent.launch_mode(1, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(agent.until_beating([&] { return !agent.acks.empty(); }));
  const std::uint64_t named = agent.acks.back();
  std::uint64_t sequence = 1'000'000;
  const bool frozen = eventually([&] {
    agent.send(agent_link::Heartbeat{++sequence, named}.encode());
    return all_are_frozen(agent);
  });
  EXPECT_TRUE(frozen);
}

TEST(AgentLease, DoesNotWakeProcessesThatSomebodyElseHadStopped) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"stopped-child"});
  agent.launch_mode(2, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(beats_until_ready(agent, 2));
  const pid_t stopped = number_after(agent.of(1).out, "stopped ");
  ASSERT_TRUE(freezes(agent));
  const pid_t parent = agent.of(1).pid;
  ASSERT_TRUE(agent.until_beating([&] { return state_of(parent) != 'T'; }));
  // The reaper wakes children before their parents, so it has passed this one already.
  EXPECT_EQ(state_of(stopped), 'T');
}

TEST(AgentLease, ADebuggerThatAttachesMeanwhileGetsTheStopThatItWaitsFor) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"attach"});
  const auto number = [&](const char* after) { return number_after(agent.of(1).out, after); };
  ASSERT_TRUE(
      agent.until_beating([&] { return number("attached to ") != 0 && number("holds up ") != 0; }));
  const pid_t worker = agent.of(1).pid;
  const pid_t attached = number("attached to ");
  const pid_t holding_up = number("holds up ");
  ASSERT_TRUE(eventually([&] {
    return state_of(worker) == 'T' && state_of(holding_up) == 'T' && is_about_to_stop(attached);
  }));

  // The reaper wakes children before their parents, so it has looked at the one that is attached.
  ASSERT_TRUE(agent.until_beating([&] { return state_of(worker) != 'T'; }));
  ::kill(holding_up, SIGKILL);
  ASSERT_TRUE(agent.until_beating([&] { return number("stopped by ") != 0; }));
  EXPECT_EQ(number("stopped by "), SIGSTOP);
  ASSERT_TRUE(
      agent.until_beating([&] { return agent.of(1).out.find("tick") != std::string::npos; }));
}

TEST(AgentLease, FreezesProcessesAgainThatSomebodyWakes) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(freezes(agent));
  ::kill(agent.of(1).pid, SIGCONT);
  EXPECT_TRUE(freezes(agent));
}

TEST(AgentLease, FreezesAWorkerThatIsLaunchedMeanwhileUntilItIsRenewed) {
  AgentUnderTest agent(with_lease(100));
  agent.launch_mode(1, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(freezes(agent));
  agent.launch_mode(2, {"tick"});
  ASSERT_TRUE(eventually([&] { return processes_of_workers(agent).size() == 2; }));
  ASSERT_TRUE(freezes(agent));
  ASSERT_TRUE(beats_until_ready(agent, 2));
}

TEST(AgentLease, HoldsOrdersToStopAndToGoOnUntilItIsRenewed) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"tick"});
  agent.launch_mode(2, {"stay-stubbornly"});
  agent.launch_mode(3, {"tick"});
  for (agent_link::Incarnation i = 1; i <= 3; ++i) ASSERT_TRUE(beats_until_ready(agent, i));
  agent.send(agent_link::Signal{2, SIGSTOP}.encode());
  const pid_t second = agent.of(2).pid;
  ASSERT_TRUE(agent.until_beating([&] { return state_of(second) == 'T'; }));
  ASSERT_TRUE(freezes(agent));
  agent.send(agent_link::Signal{1, SIGSTOP}.encode() + agent_link::Signal{2, SIGCONT}.encode());
  ASSERT_TRUE(agent.until_beating([&] { return state_of(second) != 'T'; }));
  agent.take_in_what_is_there();
  const std::size_t first = agent.of(1).out.size();
  const std::size_t third = agent.of(3).out.size();
  ASSERT_TRUE(agent.until_beating([&] { return agent.of(3).out.size() > third + 100; }));
  EXPECT_EQ(agent.of(1).out.size(), first);
  EXPECT_EQ(state_of(agent.of(1).pid), 'T');
}

TEST(AgentLease, AnOrderToGoOnWakesNobodyBeforeItIsRenewed) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(freezes(agent));
  agent.take_in_what_is_there();
  const std::size_t before = agent.of(1).out.size();
  agent.send(agent_link::Signal{1, SIGCONT}.encode() + agent_link::Kill{1}.encode());
  // The kill comes after it: until then the worker has said nothing more than before.
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
  EXPECT_EQ(agent.of(1).out.size(), before);
}

TEST(AgentLease, AStopReachesAFrozenWorkerWhenItIsRenewed) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"until-told-to-stop"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(freezes(agent));
  agent.send(agent_link::Stop{1, 600'000, "enough"}.encode());
  ASSERT_TRUE(agent.until_beating([&] { return agent.of(1).over(); }));
  EXPECT_EQ(agent.of(1).exited->exit_code, 0);
  EXPECT_NE(agent.of(1).out.find("SIGTERM after: enough"), std::string::npos) << agent.of(1).out;
}

TEST(AgentLease, AStopKillsAFrozenWorkerAfterTheGrace) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"until-told-to-stop"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(freezes(agent));
  agent.send(agent_link::Stop{1, 50, "enough"}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
}

TEST(AgentLease, KillAndShutdownEndFrozenWorkers) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"daemon"});
  agent.launch_mode(2, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ASSERT_TRUE(beats_until_ready(agent, 2));
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  ASSERT_TRUE(freezes(agent));
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_TRUE(eventually([&] { return is_gone(daemon); }));
  EXPECT_EQ(state_of(agent.of(2).pid), 'T');
  agent.send(agent_link::Shutdown{}.encode());
  agent.until_closed();
  EXPECT_TRUE(agent.bye);
  EXPECT_TRUE(agent.of(2).over());
  EXPECT_EQ(agent.wait_for_exit(), 0);
}

TEST(AgentLease, EndOfTheLinkKillsFrozenWorkers) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"daemon"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  ASSERT_TRUE(freezes(agent));
  agent.close_link();
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(is_gone(daemon));
}

TEST(AgentLease, SilenceKillsEverythingAfterTheOrphanTimeout) {
  AgentUnderTest agent(with_lease(200, 1500));
  agent.launch_mode(1, {"daemon"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(is_gone(daemon));
  const std::string err = agent.err();
  EXPECT_NE(err.find("nothing was heard from hvdrun for 1.5 s; killing 1 workers"),
            std::string::npos)
      << err;
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
}

TEST(AgentLease, SilenceKillsAlsoWithoutALease) {
  AgentUnderTest agent(with_lease(0, 1000));
  agent.launch_mode(1, {"tick"});
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(processes_with_variable(AgentUnderTest::kMark, agent.mark()).empty());
}

TEST(AgentLease, HoldsWhileTheAgentIsStopped) {
  AgentUnderTest agent(with_lease(200));
  agent.launch_mode(1, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ::kill(agent.pid(), SIGSTOP);
  ASSERT_TRUE(freezes(agent));
  agent.beat();  // unread, so that nothing is renewed
  ASSERT_EQ(state_of(agent.of(1).pid), 'T');
  ::kill(agent.pid(), SIGCONT);
  // The worker has printed little since it was ready; all the rest comes after the renewal.
  ASSERT_TRUE(agent.until_beating([&] { return !agent.problems.empty(); }));
  agent.take_in_what_is_there();
  const std::size_t said = agent.of(1).out.size();
  ASSERT_TRUE(agent.until_beating([&] { return agent.of(1).out.size() > said; }));
}

TEST(AgentLease, WorkersOfAnAgentThatStaysStoppedAreKilledAfterTheOrphanTimeout) {
  AgentUnderTest agent(with_lease(200, 1500));
  agent.launch_mode(1, {"daemon"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  const pid_t worker = agent.of(1).pid;
  ::kill(agent.pid(), SIGSTOP);
  EXPECT_TRUE(eventually([&] { return is_gone(daemon) && is_gone(worker); }));
  ::kill(agent.pid(), SIGCONT);
  EXPECT_EQ(agent.wait_for_exit(), 1);  // it looks at its clock first
}

TEST(AgentPause, StopsTheWorkersUntilItIsTakenBack) {
  for (const std::uint32_t lease_ms : {0U, 60'000U}) {
    AgentUnderTest agent(with_lease(lease_ms));
    agent.launch_mode(1, {"daemon"});
    agent.launch_mode(2, {"tick"});
    ASSERT_TRUE(agent.until([&] { return !agent.of(2).out.empty(); }));
    ASSERT_TRUE(agent.until([&] { return number_after(agent.of(1).out, "daemon ") != 0; }));
    agent.send(agent_link::Pause{true}.encode());
    ASSERT_TRUE(agent.until([&] { return agent.pauses == 1; }));
    ASSERT_TRUE(freezes(agent));

    agent.send(agent_link::Pause{false}.encode());
    ASSERT_TRUE(agent.until([&] { return agent.pauses == 2; }));
    agent.take_in_what_is_there();
    const std::size_t said = agent.of(2).out.size();
    ASSERT_TRUE(agent.until([&] { return agent.of(2).out.size() > said; }));
    EXPECT_TRUE(agent.problems.empty()) << agent.problems[0];  // it was wished
  }
}

TEST(AgentPause, EndsWithTheAgent) {
  AgentUnderTest agent(with_lease(0));
  agent.launch_mode(1, {"daemon"});
  ASSERT_TRUE(agent.until([&] { return number_after(agent.of(1).out, "daemon ") != 0; }));
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  agent.send(agent_link::Pause{true}.encode());
  ASSERT_TRUE(freezes(agent));
  agent.close_link();
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(is_gone(daemon));
}

TEST(AgentLease, AnAgentThatWasStoppedWithItsReapersCountsOnlyTheTimeInWhichItRan) {
  AgentUnderTest agent(with_lease(200, 1000));
  agent.launch_mode(1, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  const pid_t reaper = reaper_of(agent.of(1).pid);
  ::kill(agent.pid(), SIGSTOP);
  ::kill(reaper, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return is_stopped(agent.pid()) && is_stopped(reaper); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // of what must not count
  ::kill(reaper, SIGCONT);
  ::kill(agent.pid(), SIGCONT);
  // The worker has printed little since it was ready; all the rest comes after the renewal.
  ASSERT_TRUE(agent.until_beating([&] { return !agent.problems.empty(); }));
  agent.take_in_what_is_there();
  const std::size_t said = agent.of(1).out.size();
  ASSERT_TRUE(agent.until_beating([&] { return agent.of(1).out.size() > said; }));
}

TEST(AgentLease, HoldsAlsoIfAReaperWasStopped) {
  AgentUnderTest agent(with_lease(300));
  agent.launch_mode(1, {"tick"});
  ASSERT_TRUE(beats_until_ready(agent, 1));
  ::kill(reaper_of(agent.of(1).pid), SIGSTOP);
  EXPECT_TRUE(freezes(agent));
}

}  // namespace
}  // namespace hvd::test
