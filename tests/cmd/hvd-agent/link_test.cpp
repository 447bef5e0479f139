// The link to the driver: greeting, heartbeats, shutdown, and everything that no driver sends.
#include <array>
#include <csignal>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "base/text.h"
#include "base/versions.h"
#include "base/wire.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

using Greeting = AgentUnderTest::Greeting;

void expect_refused(AgentUnderTest& agent, const std::string& word) {
  agent.until_closed();
  ASSERT_EQ(agent.problems.size(), 1U);
  EXPECT_NE(agent.problems[0].find(word), std::string::npos) << agent.problems[0];
  EXPECT_FALSE(agent.bye);
  EXPECT_EQ(agent.wait_for_exit(), 1);
}

TEST(AgentLink, SaysWhoItIs) {
  AgentUnderTest agent;
  EXPECT_EQ(agent.ready->pid, agent.pid());
  EXPECT_EQ(agent.ready->build_id, build_id());
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size()), 0);
  EXPECT_EQ(agent.ready->host_name, name.data());
}

TEST(AgentLink, HasASessionOfItsOwn) {
  AgentUnderTest agent;
  EXPECT_EQ(::getsid(agent.pid()), agent.pid());
}

TEST(AgentLink, RefusesAnotherBuild) {
  AgentUnderTest agent(Greeting::none);
  agent_link::Hello hello;
  hello.build_id = "0.0.1-strange";
  agent.send(hello.encode());
  expect_refused(agent, "0.0.1-strange");
}

TEST(AgentLink, RefusesAnotherProtocol) {
  AgentUnderTest agent(Greeting::none);
  agent_link::Hello hello;
  hello.build_id = build_id();
  hello.protocol = 99;
  agent.send(hello.encode());
  expect_refused(agent, "protocol 99");
}

TEST(AgentLink, RefusesEverythingBeforeHello) {
  AgentUnderTest agent(Greeting::none);
  agent.send(agent_link::Heartbeat{1}.encode());
  expect_refused(agent, "instead of hello");
}

TEST(AgentLink, RefusesASecondHello) {
  AgentUnderTest agent;
  agent_link::Hello hello;
  hello.build_id = build_id();
  agent.send(hello.encode());
  expect_refused(agent, "second hello");
}

TEST(AgentLink, RefusesText) {
  AgentUnderTest agent(Greeting::none);
  agent.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  expect_refused(agent, "bytes, where 2 to");
}

TEST(AgentLink, RefusesAnOversizedFrameAndKillsItsWorkers) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay-stubbornly"});
  ASSERT_TRUE(agent.until([&] { return !agent.of(1).out.empty(); }));
  agent.send(WireWriter().u32(0x7fffffff).u16(2).take());
  expect_refused(agent, "2147483647");
  EXPECT_TRUE(processes_with_variable(AgentUnderTest::kMark, agent.mark()).empty());
}

TEST(AgentLink, RefusesAMessageThatIsCutShort) {
  AgentUnderTest agent;
  agent.send(encode_frame(static_cast<std::uint16_t>(agent_link::Kind::launch), "abc"));
  expect_refused(agent, "Launch");
}

TEST(AgentLink, RefusesAnUnknownKind) {
  AgentUnderTest agent;
  agent.send(encode_frame(4711, ""));
  expect_refused(agent, "4711");
}

TEST(AgentLink, RefusesAnIncarnationThatRunsAlready) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay"});
  agent.launch_mode(1, {"stay"});
  expect_refused(agent, "incarnation 1");
}

TEST(AgentLink, EndsOnRandomBytesWithoutACrash) {
  std::mt19937 random(20240521);
  for (int round = 0; round < 30; ++round) {
    AgentUnderTest agent(round % 2 == 0 ? Greeting::none : Greeting::hello);
    std::string bytes(1 + random() % 3000, '\0');
    for (auto& c : bytes) c = static_cast<char>(random());
    if (round % 3 != 0) {  // a sound frame around it, so that decoders are reached
      const auto kind = static_cast<std::uint16_t>(1 + random() % 12);
      bytes = encode_frame(kind, std::string_view(bytes).substr(0, random() % 40));
    }
    // Random bytes can be the start of a long frame: the end of file then ends the agent.
    agent.send(bytes);
    agent.close_link();
    const int exit_code = agent.wait_for_exit();
    EXPECT_TRUE(exit_code == 1 || exit_code == 0) << exit_code << " in round " << round;
  }
}

TEST(AgentLink, EndOfFileInTheMiddleOfAFrameEndsIt) {
  AgentUnderTest agent;
  const std::string frame = agent.launch_of(1, {"true"}).encode();
  agent.send(frame.substr(0, frame.size() / 2));
  agent.close_link();
  EXPECT_EQ(agent.wait_for_exit(), 1);
}

TEST(AgentLink, AnswersHeartbeats) {
  AgentUnderTest agent;
  for (std::uint64_t i = 1; i <= 50; ++i) agent.send(agent_link::Heartbeat{i}.encode());
  ASSERT_TRUE(agent.until([&] { return agent.acks.size() == 50; }));
  EXPECT_EQ(agent.acks.back(), 50U);
}

TEST(AgentLink, OrdersForWorkersThatHaveEndedAreIgnored) {
  AgentUnderTest agent;
  agent.launch(1, {"true"});
  ASSERT_TRUE(agent.until_over(1));
  agent.send(agent_link::Signal{1, SIGTERM}.encode() + agent_link::Stop{1, 5, ""}.encode() +
             agent_link::Kill{1}.encode() +
             agent_link::Credit{1, agent_link::Stream::standard_output, 5}.encode() +
             agent_link::Heartbeat{1}.encode());
  ASSERT_TRUE(agent.until([&] { return !agent.acks.empty(); }));
  EXPECT_TRUE(agent.problems.empty());
}

TEST(AgentLink, SaysThatASignalDoesNotExist) {
  AgentUnderTest agent;
  agent.send(agent_link::Signal{agent_link::kAllWorkers, 4000}.encode());
  ASSERT_TRUE(agent.until([&] { return !agent.problems.empty(); }));
  EXPECT_NE(agent.problems[0].find("4000"), std::string::npos);
}

TEST(AgentLink, ShutdownWithoutWorkersSaysBye) {
  AgentUnderTest agent;
  agent.send(agent_link::Shutdown{}.encode());
  agent.until_closed();
  EXPECT_TRUE(agent.bye);
  EXPECT_EQ(agent.wait_for_exit(), 0);
}

TEST(AgentLink, AnAgentThatIsNotNeededEndsWithTheCodeOfTheJob) {
  AgentUnderTest agent(Greeting::none);
  agent.send(agent_link::Shutdown{7}.encode());
  agent.until_closed();
  EXPECT_TRUE(agent.bye);
  EXPECT_EQ(agent.wait_for_exit(), 7);
}

TEST(AgentLink, ShutdownTellsEveryEndBeforeBye) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay-stubbornly"});
  agent.launch_mode(2, {"children", "5"});
  agent.launch_mode(3, {"daemon"});
  for (agent_link::Incarnation i = 1; i <= 3; ++i) {
    ASSERT_TRUE(agent.until([&] { return !agent.of(i).out.empty(); }));
  }
  agent.send(agent_link::Shutdown{}.encode());
  agent.until_closed();
  for (agent_link::Incarnation i = 1; i <= 3; ++i) {
    ASSERT_TRUE(agent.of(i).over()) << i;
    EXPECT_EQ(agent.of(i).exited->signal_number, SIGKILL);
  }
  EXPECT_TRUE(agent.bye);
  EXPECT_TRUE(processes_with_variable(AgentUnderTest::kMark, agent.mark()).empty() ||
              agent.wait_for_exit() == 0);
  EXPECT_EQ(agent.wait_for_exit(), 0);
}

TEST(AgentLink, RefusesToLaunchWhileItEnds) {
  AgentUnderTest agent;
  agent.send(agent.launch_of(1, {"sleep", "1000"}).encode() + agent_link::Shutdown{}.encode() +
             agent.launch_of(2, {"true"}).encode());
  agent.until_closed();
  ASSERT_TRUE(agent.of(2).failed.has_value());
  EXPECT_NE(agent.of(2).failed->message.find("ending"), std::string::npos);
}

TEST(AgentLink, IsOfNoUseWithoutALink) {
  const auto result = run({binary("hvd-agent")});  // /dev/null for stdin
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("hvdrun's link"), std::string::npos) << result.err;
  EXPECT_EQ(run({binary("hvd-agent"), "--what"}).code, 2);
  EXPECT_EQ(run({binary("hvd-agent"), "--version"}).out, cat("hvd-agent ", build_id(), "\n"));
}

}  // namespace
}  // namespace hvd::test
