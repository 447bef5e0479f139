// hvdrun has given up an agent that does not know it, and starts another one on the same host.
#include <algorithm>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/machine/proc.h"
#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvd-agent/process_tree.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"
#include "tests/support/other_user.h"

namespace hvd::test {
namespace {

// Names of agents are known in the whole machine, and other tests run beside this one.
AgentOptions on_host(const std::string& name) {
  AgentOptions options;
  options.hello.host = cat(name, "-", ::getpid());
  options.hello.lease_ms = 200;
  return options;
}

// A worker and its daemon, frozen, since the test does not beat any more. Returns both.
std::pair<pid_t, pid_t> leave_frozen(AgentUnderTest& agent) {
  agent.launch_mode(1, {"daemon"});
  EXPECT_TRUE(agent.until_beating([&] { return agent.of(1).out.find('\n') != std::string::npos; }));
  const pid_t worker = agent.of(1).pid;
  const pid_t daemon = number_after(agent.of(1).out, "daemon ");
  EXPECT_TRUE(eventually([&] { return state_of(worker) == 'T' && state_of(daemon) == 'T'; }));
  return {worker, daemon};
}

TEST(HostClaim, FrozenWorkersOfAnOlderAgentAreGoneBeforeANewerOneIsReady) {
  AgentUnderTest older(on_host("one"));
  const auto [worker, daemon] = leave_frozen(older);

  const AgentUnderTest newer(on_host("one"));
  ASSERT_TRUE(newer.ready);
  EXPECT_TRUE(is_gone(worker));
  EXPECT_TRUE(is_gone(daemon));
  EXPECT_EQ(older.wait_for_exit(), 1);
}

TEST(HostClaim, EachAgentEndsTheOneBefore) {
  AgentUnderTest first(on_host("one"));
  AgentUnderTest second(on_host("one"));
  AgentUnderTest third(on_host("one"));
  EXPECT_EQ(first.wait_for_exit(), 1);
  EXPECT_EQ(second.wait_for_exit(), 1);
  third.launch_mode(1, {"tick"});
  EXPECT_TRUE(third.until_beating([&] { return !third.of(1).out.empty(); }));
}

TEST(HostClaim, AnOlderAgentThatIsStoppedIsKilled) {
  AgentUnderTest older(on_host("one"));
  const auto [worker, daemon] = leave_frozen(older);
  ASSERT_EQ(::kill(older.pid(), SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] { return state_of(older.pid()) == 'T'; }));

  const AgentUnderTest newer(on_host("one"));
  ASSERT_TRUE(newer.ready);
  EXPECT_TRUE(is_gone(worker));
  EXPECT_TRUE(is_gone(daemon));
  EXPECT_EQ(older.wait_for_exit(), -SIGKILL);
}

// As when a whole login session is stopped: then no reaper kills its worker either.
TEST(HostClaim, NothingIsLeftOfAnOlderAgentThatIsStoppedWithAllThatItStarted) {
  AgentUnderTest older(on_host("one"));
  leave_frozen(older);
  const auto started = agent::descendants_of(older.pid());
  ASSERT_GE(started.size(), 3U) << "a reaper, the worker and its daemon";
  ASSERT_EQ(::kill(older.pid(), SIGSTOP), 0);
  for (const auto& process : started) ASSERT_EQ(::kill(process.pid, SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] {
    return is_stopped(older.pid()) &&
           std::all_of(started.begin(), started.end(),
                       [](const auto& process) { return is_stopped(process.pid); });
  }));

  const AgentUnderTest newer(on_host("one"));
  ASSERT_TRUE(newer.ready);
  for (const auto& process : started) EXPECT_TRUE(is_gone(process.pid)) << process.pid;
  EXPECT_EQ(older.wait_for_exit(), -SIGKILL);
}

// Any user may connect there.
TEST(HostClaim, AnotherUserEndsNoAgent) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  AgentUnderTest agent(on_host("one"));
  const std::string host = cat("one-", ::getpid());
  const AbstractAddress where(
      cat("hvd-agent.", ::geteuid(), ".test.", std::hash<std::string>()(host)));
  EXPECT_TRUE(as_other_user({}, [&where] {
    const auto connection = connect_unix(where.get(), where.size, Clock::now() + kGenerous);
    char byte = 0;
    return connection.ok() && wait_for(connection->get(), POLLIN, Clock::now() + kGenerous).ok() &&
           ::recv(connection->get(), &byte, 1, 0) == 0;
  }));
  agent.launch_mode(1, {"tick"});
  EXPECT_TRUE(agent.until_beating([&] { return !agent.of(1).out.empty(); }));
}

TEST(HostClaim, AgentsOfOtherHostsAreLeftAlone) {
  AgentUnderTest one(on_host("one"));
  AgentUnderTest other(on_host("other"));
  for (AgentUnderTest* const agent : {&one, &other}) {
    agent->launch_mode(1, {"tick"});
    EXPECT_TRUE(agent->until_beating([&] { return !agent->of(1).out.empty(); }));
  }
}

}  // namespace
}  // namespace hvd::test
