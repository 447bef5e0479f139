// Workers that hold the lock which says that they live: how soon the agent tells of their death,
// and what becomes of their place meanwhile.
#include <array>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/text.h"
#include "cmd/hvd-agent/reaper.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

constexpr const char* kMegabytes = "400";  // which take the kernel some 50 ms to free

// Whether the process has been told of as dead while its memory is still being freed.
bool still_frees_memory(pid_t pid) {
  const char state = state_of(pid);
  return state != '\0' && state != 'Z';
}

TEST(AgentDeath, IsToldBeforeTheMemoryIsFreed) {
  AgentUnderTest agent;
  // A busy machine may free the memory before the agent has had its turn, but not each time.
  bool was_early = false;
  for (agent_link::Incarnation worker = 1; worker <= 20 && !was_early; ++worker) {
    agent.launch_mode(worker, {"hold-memory", kMegabytes});
    ASSERT_TRUE(agent.until([&] { return agent.of(worker).out == "ready\n"; }));
    const pid_t pid = agent.of(worker).pid;
    ::kill(pid, SIGKILL);
    ASSERT_TRUE(agent.until([&] { return agent.of(worker).exited.has_value(); }));
    was_early = still_frees_memory(pid);
    EXPECT_EQ(agent.of(worker).exited->signal_number, SIGKILL);
    EXPECT_EQ(agent.of(worker).exited->pid, pid);
    ASSERT_TRUE(agent.until_over(worker));
    EXPECT_TRUE(eventually([pid] { return !still_frees_memory(pid); }));
  }
  EXPECT_TRUE(was_early);
}

TEST(AgentDeath, TheNextWorkerOfTheSlotStartsWhenTheMemoryIsFreed) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"hold-memory", kMegabytes});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).out == "ready\n"; }));
  const pid_t pid = agent.of(1).pid;
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(agent.until([&] { return agent.of(1).exited.has_value(); }));
  const std::string look = cat("ps -o stat= -p ", pid, " || echo gone");
  auto next = agent.launch_of(2, {"sh", "-c", look});
  next.worker = "here#1";
  agent.send(next.encode());
  ASSERT_TRUE(agent.until_over(2));
  const std::string state(trim(agent.of(2).out));
  EXPECT_TRUE(state == "gone" || state.starts_with("Z")) << state;
}

TEST(PlaceWait, EndsWithThePredecessorAnOrderTheAgentOrItsLimit) {
  using agent::PlaceWait;
  using agent::ReaperOrder;
  const pid_t living = ::fork();
  if (living == 0) {
    for (;;) ::pause();
  }
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, living, 0)));
  if (!process) GTEST_SKIP() << "this kernel has no pidfd";
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  UniqueFd orders(ends[0]);
  const UniqueFd agent(ends[1]);
  const auto order = [&](ReaperOrder::Kind kind, int number = 0) {
    const ReaperOrder record{kind, number};
    ASSERT_EQ(::send(orders.get(), &record, sizeof(record), 0), ssize_t{sizeof(record)});
  };
  std::vector<int> signals;
  const auto wait = [&](TimePoint deadline) {
    return agent::wait_for_place(process.get(), agent.get(), deadline, signals);
  };

  // Neither a renewed lease nor a signal frees the place.
  order(ReaperOrder::Kind::check_lease);
  order(ReaperOrder::Kind::signal, SIGUSR1);
  EXPECT_EQ(wait(Clock::now() + std::chrono::milliseconds(20)), PlaceWait::overdue);
  EXPECT_EQ(signals, std::vector<int>{SIGUSR1});
  order(ReaperOrder::Kind::kill);
  EXPECT_EQ(wait(kNever), PlaceWait::stopped);
  orders.reset();
  EXPECT_EQ(wait(kNever), PlaceWait::agent_gone);
  ::kill(living, SIGKILL);
  ::waitpid(living, nullptr, 0);
  EXPECT_EQ(wait(kNever), PlaceWait::free);
}

TEST(AgentDeath, AProgramThatIsReplacedByAnotherLives) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"hold-and-execute"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).out == "another program\n"; }));
  EXPECT_FALSE(agent.of(1).exited);
  ::kill(agent.of(1).pid, SIGTERM);
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGTERM);
}

}  // namespace
}  // namespace hvd::test
