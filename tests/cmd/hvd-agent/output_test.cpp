// Output: bytes as they were written, in order, held back by credit, complete before the exit.
#include <algorithm>
#include <csignal>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

using agent_link::Kind;
using agent_link::Stream;

// The output of `spew` of test_worker.cpp.
std::string spewed(std::size_t count) {
  std::string pattern;
  for (std::size_t i = 0; i < 65'521; ++i) pattern += static_cast<char>(i * 31 + i / 256);
  std::string all;
  while (all.size() < count) all += pattern;
  all.resize(count);
  return all;
}

TEST(AgentOutput, IsBytesOfTwoStreams) {
  AgentUnderTest agent;
  agent.launch(1, {"printf", "a\\000\\377\\rb\\n"});
  agent.launch(2, {"sh", "-c", "printf 'out\\303\\050'; printf 'err\\200' >&2"});
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_TRUE(agent.until_over(2));
  EXPECT_EQ(agent.of(1).out, std::string("a\0\xff\rb\n", 6));
  EXPECT_EQ(agent.of(1).err, "");
  EXPECT_EQ(agent.of(2).out, "out\xc3(");
  EXPECT_EQ(agent.of(2).err, "err\x80");
}

TEST(AgentOutput, ComesBeforeTheExit) {
  AgentUnderTest agent;
  for (agent_link::Incarnation i = 1; i <= 20; ++i) {
    agent.launch(i, {"sh", "-c", "echo some; echo more >&2; echo last"});
  }
  for (agent_link::Incarnation i = 1; i <= 20; ++i) {
    ASSERT_TRUE(agent.until([&] { return agent.of(i).exited.has_value(); }));
    EXPECT_EQ(agent.of(i).out, "some\nlast\n");
    EXPECT_EQ(agent.of(i).err, "more\n");
    ASSERT_TRUE(agent.until_over(i));
    const auto& order = agent.of(i).order;
    EXPECT_EQ(order.front(), Kind::launched);
    const auto exited = std::find(order.begin(), order.end(), Kind::exited);
    EXPECT_EQ(std::find(exited, order.end(), Kind::output), order.end());
  }
}

TEST(AgentOutput, WaitsForCreditAndHoldsBackNobodyElse) {
  constexpr std::size_t kCount = 10'000'000;
  AgentUnderTest agent;
  agent.gives_credit = false;
  agent.launch_mode(1, {"spew", std::to_string(kCount)});
  const auto& out = agent.of(1).out;
  ASSERT_TRUE(agent.until([&] { return out.size() >= agent_link::kOutputWindow; }));

  // The credit is used up. Other workers are served meanwhile, and a heartbeat is answered.
  agent.launch(2, {"echo", "hello"});
  ASSERT_TRUE(agent.until_over(2));
  agent.send(agent_link::Heartbeat{7}.encode());
  ASSERT_TRUE(agent.until([&] { return !agent.acks.empty(); }));
  EXPECT_EQ(agent.acks.front(), 7U);
  EXPECT_EQ(out.size(), agent_link::kOutputWindow);
  EXPECT_FALSE(agent.of(1).exited.has_value());

  // A slow reader, in odd pieces: never more is in flight than was paid for.
  std::size_t paid = 0;
  while (out.size() < kCount) {
    const std::size_t piece = std::min<std::size_t>(99'991, out.size() - paid);
    ASSERT_GT(piece, 0U);
    agent.send(agent_link::Credit{1, Stream::standard_output, piece}.encode());
    paid += piece;
    const std::size_t allowed = std::min(kCount, paid + agent_link::kOutputWindow);
    ASSERT_TRUE(agent.until([&] { return out.size() >= allowed; }));
    ASSERT_EQ(out.size(), allowed);
  }
  EXPECT_TRUE(out == spewed(kCount)) << "bytes were lost, doubled or mixed up";
  agent.send(agent_link::Credit{1, Stream::standard_output, kCount}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->exit_code, 0);
}

TEST(AgentOutput, OfAnEndedWorkerStillWaitsForCreditBeforeTheExit) {
  constexpr std::size_t kCount = agent_link::kOutputWindow + 40'000;  // the rest fits into the pipe
  AgentUnderTest agent;
  agent.gives_credit = false;
  agent.launch_mode(1, {"spew", std::to_string(kCount)});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).out.size() >= agent_link::kOutputWindow; }));
  ASSERT_TRUE(
      eventually([&] { return processes_with_variable(agent.kMark, agent.mark()).size() == 1; }));
  agent.send(agent_link::Heartbeat{1}.encode());
  ASSERT_TRUE(agent.until([&] { return !agent.acks.empty(); }));
  EXPECT_FALSE(agent.of(1).exited.has_value());
  agent.send(agent_link::Credit{1, Stream::standard_output, kCount}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).out, spewed(kCount));
}

TEST(AgentOutput, StaysOpenWhileAGrandchildHoldsIt) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"leave-child"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).exited.has_value(); }));
  EXPECT_EQ(agent.of(1).out, "last words\n");
  EXPECT_FALSE(agent.of(1).out_closed);
  EXPECT_FALSE(agent.of(1).err_closed);
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
}

TEST(AgentOutput, OfAGrandchildThatNeverStopsDoesNotHoldUpTheExit) {
  AgentUnderTest agent;
  agent.launch(1, {"sh", "-c", "yes & exit 4"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).exited.has_value(); }));
  EXPECT_EQ(agent.of(1).exited->exit_code, 4);
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
}

TEST(AgentOutput, ClosesEachStreamByItself) {
  AgentUnderTest agent;
  agent.launch(1, {"sh", "-c", "exec >&-; exec sleep 1000"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).out_closed; }));
  EXPECT_FALSE(agent.of(1).err_closed);
  EXPECT_FALSE(agent.of(1).exited.has_value());
}

}  // namespace
}  // namespace hvd::test
