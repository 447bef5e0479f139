// Probes of reachability: agents that probe each other, and other listeners that may answer.
#include <cerrno>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "base/socket.h"
#include "base/text.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

using agent_link::Probe;
using agent_link::ProbeTarget;

constexpr std::uint32_t kPatient = 60'000;

std::vector<std::string> probe(AgentUnderTest& agent, std::vector<ProbeTarget> targets,
                               std::uint32_t timeout_ms = kPatient) {
  static std::uint32_t id = 0;
  const std::uint32_t mine = ++id;
  agent.send(Probe{mine, timeout_ms, std::move(targets)}.encode());
  if (!agent.until([&] { return agent.probed.count(mine) != 0; })) return {};
  return agent.probed[mine].errors;
}

UniqueFd listener(std::uint16_t& port, int backlog = 16) {
  auto socket = listen_tcp({"127.0.0.1", 0}, backlog);
  EXPECT_TRUE(socket.ok());
  port = local_address(socket->get())->port;
  return std::move(*socket);
}

// A listener that accepts one connection and handles it as a test asks.
class Stranger {
 public:
  explicit Stranger(std::function<void(int client)> act) : socket_(listener(port_)) {
    thread_ = std::thread([this, act = std::move(act)] {
      const auto client = accept_tcp(socket_.get(), Clock::now() + kGenerous);
      if (client.ok()) act(client->get());
    });
  }
  ~Stranger() { thread_.join(); }
  ProbeTarget target(const std::string& greeting) const { return {"127.0.0.1", port_, greeting}; }

 private:
  std::uint16_t port_ = 0;
  UniqueFd socket_;
  std::thread thread_;
};

void say(int socket, std::string_view text) {
  EXPECT_TRUE(send_all(socket, text, Clock::now() + kGenerous).ok());
}

void wait_until_closed(int socket) {
  char byte = 0;
  while (wait_for(socket, POLLIN, Clock::now() + kGenerous).ok() &&
         ::recv(socket, &byte, 1, 0) > 0) {
  }
}

TEST(AgentProbe, ReachesAnotherAgentAndItself) {
  AgentUnderTest one;
  AgentUnderTest other;
  ASSERT_NE(one.ready->probe_port, 0);
  ASSERT_NE(other.ready->probe_port, 0);
  EXPECT_EQ(one.ready->probe_greeting.size(), 32U);
  EXPECT_EQ(one.ready->probe_greeting.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(one.ready->probe_greeting, other.ready->probe_greeting);
  std::vector<ProbeTarget> targets;
  // Every address that the other has told, and the greeting that it has told.
  for (const auto& interface : other.ready->interfaces) {
    if (interface.address.starts_with("fe80:")) continue;  // needs a scope
    targets.push_back({interface.address, other.ready->probe_port, other.ready->probe_greeting});
  }
  targets.push_back({"127.0.0.1", one.ready->probe_port, one.ready->probe_greeting});
  targets.push_back({"127.0.0.1", one.ready->probe_port, ""});
  ASSERT_GE(targets.size(), 3U);
  EXPECT_EQ(probe(one, targets), std::vector<std::string>(targets.size()));
}

TEST(AgentProbe, SaysOfEachTargetWhatHappened) {
  AgentUnderTest agent;
  const std::uint16_t port = agent.ready->probe_port;
  std::uint16_t closed = 0;
  listener(closed).reset();
  const auto errors = probe(agent, {{"127.0.0.1", closed, "x"},
                                    {"127.0.0.1", port, agent.ready->probe_greeting},
                                    {"127.0.0.1", port, "another greeting"},
                                    {"localhost", port, ""},
                                    {"", port, ""}});
  ASSERT_EQ(errors.size(), 5U);
  EXPECT_EQ(errors[0], cat("connect to 127.0.0.1:", closed, ": Connection refused"));
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(errors[2], cat("connect to 127.0.0.1:", port, ": another program answers there"));
  EXPECT_EQ(errors[3], "connect to localhost: that is no IP address");
  EXPECT_NE(errors[4].find("that is no IP address"), std::string::npos);
}

TEST(AgentProbe, GivesUpAtItsDeadlineOnTargetsThatDoNotAnswer) {
  AgentUnderTest agent;
  // The kernel drops connection attempts while the queue of a listener is full.
  std::uint16_t port = 0;
  const UniqueFd full = listener(port, 0);
  std::vector<UniqueFd> queue;
  for (bool is_full = false; !is_full && queue.size() < 64;) {
    auto client = connect_tcp({"127.0.0.1", port}, Clock::now() + std::chrono::milliseconds(500));
    is_full = !client.ok();
    if (!is_full) queue.push_back(std::move(*client));
  }
  const auto errors = probe(agent, {{"127.0.0.1", port, "x"}}, 300);
  EXPECT_EQ(errors,
            std::vector<std::string>{cat("connect to 127.0.0.1:", port,
                                         ": no answer within 0.3 s (does a firewall drop it?)")});
}

TEST(AgentProbe, GivesUpOnTargetsThatSayNothing) {
  AgentUnderTest agent;
  std::uint16_t port = 0;
  const UniqueFd silent = listener(port);
  const auto errors = probe(agent, {{"127.0.0.1", port, "x"}, {"127.0.0.1", port, ""}}, 1000);
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_EQ(errors[0], cat("connect to 127.0.0.1:", port,
                           ": another program answers there, which sent nothing within 1 s"));
  EXPECT_EQ(errors[1], "");
}

TEST(AgentProbe, KnowsStrangersByWhatTheySay) {
  AgentUnderTest agent;
  const Stranger byte_by_byte([](int client) {
    for (const char byte : std::string("greeting")) say(client, {&byte, 1});
    wait_until_closed(client);
  });
  const Stranger talker([](int client) { say(client, "greeting, and more of it"); });
  const Stranger half([](int client) { say(client, "greet"); });
  const Stranger mute([](int) {});
  const Stranger similar([](int client) { say(client, "greetings"); });
  const Stranger flood([](int client) {
    const std::string much(1 << 20, 'x');
    (void)send_all(client, much, Clock::now() + kGenerous);
  });
  const auto errors = probe(
      agent, {byte_by_byte.target("greeting"), talker.target("greeting"), half.target("greeting"),
              mute.target("greeting"), similar.target("greetinG"), flood.target("greeting")});
  ASSERT_EQ(errors.size(), 6U);
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  for (std::size_t i = 2; i < 6; ++i) {
    EXPECT_NE(errors[i].find("another program answers there"), std::string::npos)
        << i << ": " << errors[i];
  }
}

// Of a host whose agent listens no more.
TEST(AgentProbe, ARefusalCountsIfTheDriverSaysSo) {
  AgentUnderTest agent;
  std::uint16_t port = 0;
  listener(port).reset();
  for (const bool counts : {true, false}) {
    const std::uint32_t id = counts ? 1001 : 1002;
    agent.send(Probe{id, kPatient, {{"127.0.0.1", port, ""}}, counts}.encode());
    ASSERT_TRUE(agent.until([&] { return agent.probed.count(id) != 0; }));
    const std::string error = agent.probed[id].errors.at(0);
    EXPECT_EQ(error.empty(), counts) << error;
  }
}

TEST(AgentProbe, HoldsUpNothingElse) {
  AgentUnderTest agent;
  std::uint16_t port = 0;
  const UniqueFd silent = listener(port);
  agent.send(Probe{1, kPatient, {{"127.0.0.1", port, "x"}}}.encode());
  agent.send(agent_link::Heartbeat{1}.encode());
  ASSERT_TRUE(agent.until([&] { return !agent.acks.empty(); }));
  agent.launch(1, {"true"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.probed.count(1), 0U);
  agent.send(agent_link::Shutdown{}.encode());  // nor the end
  agent.until_closed();
  EXPECT_EQ(agent.wait_for_exit(), 0);
}

TEST(AgentProbe, AnswersAProbeOfNobody) {
  AgentUnderTest agent;
  EXPECT_TRUE(probe(agent, {}).empty());
}

TEST(AgentProbe, RefusesMoreTargetsThanThereCanBe) {
  AgentUnderTest agent;
  Probe many{1, 1000, std::vector<ProbeTarget>(4097, {"127.0.0.1", 1, ""})};
  agent.send(many.encode());
  agent.until_closed();
  ASSERT_EQ(agent.problems.size(), 1U);
  EXPECT_NE(agent.problems[0].find("4097 targets"), std::string::npos) << agent.problems[0];
  EXPECT_EQ(agent.wait_for_exit(), 1);
}

bool greets(const agent_link::Ready& ready) {
  const auto client = connect_tcp({"127.0.0.1", ready.probe_port}, Clock::now() + kGenerous);
  if (!client.ok()) return false;
  std::string heard(ready.probe_greeting.size() + 1, '\0');
  std::size_t count = 0;
  while (count < heard.size() && wait_for(client->get(), POLLIN, Clock::now() + kGenerous).ok()) {
    const ssize_t got = ::recv(client->get(), heard.data() + count, heard.size() - count, 0);
    if (got <= 0) break;
    count += static_cast<std::size_t>(got);
  }
  heard.resize(count);
  return heard == ready.probe_greeting;
}

TEST(AgentProbeListener, GreetsClientsWhateverTheyDo) {
  AgentUnderTest agent;
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 300; ++i) {
    auto client = connect_tcp({"127.0.0.1", agent.ready->probe_port}, Clock::now() + kGenerous);
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    (void)send_all(client->get(), "GET / HTTP/1.1\r\n\r\n", Clock::now() + kGenerous);
    clients.push_back(std::move(*client));  // and never closes
  }
  EXPECT_TRUE(greets(*agent.ready));
  agent.send(agent_link::Heartbeat{1}.encode());
  ASSERT_TRUE(agent.until([&] { return !agent.acks.empty(); }));
  EXPECT_TRUE(agent.problems.empty());
}

TEST(AgentProbeListener, IsThereUntilTheFirstLaunch) {
  AgentUnderTest agent;
  EXPECT_TRUE(greets(*agent.ready));
  agent.launch(1, {"true"});
  ASSERT_TRUE(agent.until_over(1));
  const auto late = connect_tcp({"127.0.0.1", agent.ready->probe_port}, Clock::now() + kGenerous);
  EXPECT_FALSE(late.ok());
}

TEST(AgentProbeListener, GreetsHoweverManyCome) {
  AgentUnderTest host;
  AgentUnderTest crowd;
  const std::vector<ProbeTarget> targets(
      4096, {"127.0.0.1", host.ready->probe_port, host.ready->probe_greeting});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(probe(crowd, targets), std::vector<std::string>(targets.size())) << round;
  }
  EXPECT_TRUE(greets(*host.ready));
  host.launch(1, {"true"});
  ASSERT_TRUE(host.until_over(1));
}

}  // namespace
}  // namespace hvd::test
