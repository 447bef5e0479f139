// The agent's report on its host's network, also on hosts that have only one kind of address. Such
// hosts are network namespaces of their own; the agent then tries whether it reaches itself.
#include <algorithm>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/machine/ports.h"
#include "base/socket.h"
#include "base/text.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

bool has(const agent_link::Ready& ready, const Interface& interface) {
  const auto& all = ready.interfaces;
  return std::find(all.begin(), all.end(), interface) != all.end();
}

std::vector<std::string> addresses(const agent_link::Ready& ready) {
  std::vector<std::string> found;
  for (const auto& interface : ready.interfaces) found.push_back(interface.address);
  return found;
}

TEST(AgentNetwork, TellsTheAddressesOfThisHost) {
  AgentUnderTest agent;
  EXPECT_TRUE(has(*agent.ready, {"lo", "127.0.0.1"}));
  for (const auto& interface : agent.ready->interfaces) {
    EXPECT_FALSE(interface.name.empty());
    EXPECT_EQ(interface.address.find('%'), std::string::npos) << interface.address;
  }
}

TEST(AgentNetwork, TellsAPortThatIsFree) {
  AgentUnderTest agent;
  ASSERT_NE(agent.ready->free_port, 0);
  EXPECT_NE(agent.ready->free_port, agent.ready->probe_port);
  EXPECT_FALSE(ephemeral_ports().contains(agent.ready->free_port)) << agent.ready->free_port;
  EXPECT_TRUE(listen_tcp({"127.0.0.1", agent.ready->free_port}).ok());
}

// An agent whose host is made by `script`, in a network of its own.
AgentOptions on_host_made_by(const std::string& script) {
  AgentOptions options;
  options.script = cat("exec unshare -n sh -c 'set -e; ", script, "; exec \"$0\"' \"$0\"");
  return options;
}

bool can_make_hosts() { return run({"unshare", "-n", "sh", "-c", "ip link set lo up"}).code == 0; }

TEST(AgentNetwork, ThePortThatItTellsIsNoneThatItsHostGivesToConnections) {
  if (!can_make_hosts()) GTEST_SKIP() << "no network namespaces here";
  AgentUnderTest agent(on_host_made_by(
      "ip link set lo up; echo 10000 61999 >/proc/sys/net/ipv4/ip_local_port_range"));
  EXPECT_GE(agent.ready->free_port, 62000);
}

std::string reach_itself(AgentUnderTest& agent, const std::string& address) {
  agent.send(agent_link::Probe{
      1, 60'000, {{address, agent.ready->probe_port, agent.ready->probe_greeting}}}
                 .encode());
  if (!agent.until([&] { return !agent.probed.empty(); })) return "no answer";
  return agent.probed[1].errors[0];
}

TEST(AgentNetwork, WorksWithIpv4Alone) {
  if (!can_make_hosts()) GTEST_SKIP() << "no network namespaces here";
  AgentUnderTest agent(
      on_host_made_by("echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; ip link set lo up"));
  EXPECT_EQ(addresses(*agent.ready), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(reach_itself(agent, "127.0.0.1"), "");
  EXPECT_NE(agent.ready->free_port, 0);
}

TEST(AgentNetwork, WorksWithIpv6Alone) {
  if (!can_make_hosts()) GTEST_SKIP() << "no network namespaces here";
  AgentUnderTest agent(on_host_made_by(
      "ip link set lo up; ip addr flush dev lo; ip -6 addr add fd00::7/64 dev lo nodad; "
      // The kernel adds the route a moment after the address.
      "until ip -6 route show table local | grep -q fd00::7; do sleep 0.01; done"));
  EXPECT_EQ(addresses(*agent.ready), std::vector<std::string>{"fd00::7"});
  EXPECT_EQ(reach_itself(agent, "fd00::7"), "");
  EXPECT_NE(agent.ready->free_port, 0);
}

// The listening sockets of this host with address and port, as ss prints them.
std::string listeners(pid_t on) {
  return run({"nsenter", "-t", std::to_string(on), "-n", "ss", "-Hltn"}).out;
}

TEST(AgentNetwork, TakesItsPortsFromTheRangeAndPassesOverThoseThatAreTaken) {
  AgentOptions options;
  // Below the ports that the kernel gives to the tests beside this one.
  auto taken = static_cast<std::uint16_t>(20'000 + ::getpid() % 10'000);
  auto first = listen_tcp({"127.0.0.1", taken});
  while (!first.ok() && taken < 32'000) first = listen_tcp({"127.0.0.1", ++taken});
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  options.hello.first_port = taken;
  options.hello.last_port = static_cast<std::uint16_t>(taken + 6);
  AgentUnderTest agent(std::move(options));
  EXPECT_EQ(agent.ready->port_error, "");
  for (const auto port : {agent.ready->probe_port, agent.ready->free_port}) {
    EXPECT_GT(port, taken);
    EXPECT_LE(port, taken + 6);
  }
  EXPECT_NE(agent.ready->probe_port, agent.ready->free_port);
}

TEST(AgentNetwork, TellsThatNoPortOfTheRangeIsLeft) {
  AgentOptions options;
  const auto only = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(only.ok());
  const auto port = local_address(only->get())->port;
  options.hello.first_port = options.hello.last_port = port;
  AgentUnderTest agent(std::move(options));
  EXPECT_EQ(agent.ready->probe_port, 0);
  EXPECT_EQ(agent.ready->free_port, 0);
  EXPECT_EQ(agent.ready->port_error,
            cat("listen on all addresses: all ports of --port-range ", port, "-", port,
                " (1) are taken; a host needs 2 for each worker and 1 more, the host of hvdrun 2 "
                "more"));
}

TEST(AgentNetwork, ListensOnlyAtTheAddressesThatWereChosen) {
  if (!can_make_hosts()) GTEST_SKIP() << "no network namespaces here";
  AgentOptions options = on_host_made_by(
      "ip link set lo up; ip link add one type veth peer name two; ip addr add "
      "10.98.0.1/24 dev one; ip addr add 10.99.0.1/24 dev two; ip link set one up; ip link "
      "set two up");
  options.hello.listen_on = {"two"};
  AgentUnderTest agent(std::move(options));
  EXPECT_EQ(reach_itself(agent, "10.99.0.1"), "");
  const auto listening = listeners(agent.ready->pid);
  const auto lines = static_cast<std::size_t>(std::count(listening.begin(), listening.end(), '\n'));
  EXPECT_EQ(lines, 1U) << listening;
  EXPECT_NE(listening.find(cat("10.99.0.1:", agent.ready->probe_port)), std::string::npos)
      << listening;
}

TEST(AgentNetwork, NobodyHasToReachTheAgentBesideHvdrun) {
  AgentOptions options;
  options.hello.local = true;
  AgentUnderTest agent(std::move(options));
  EXPECT_EQ(agent.ready->probe_port, 0);
  EXPECT_EQ(agent.ready->port_error, "");
  EXPECT_NE(agent.ready->free_port, 0);
}

TEST(AgentNetwork, LeavesOutInterfacesThatAreDown) {
  if (!can_make_hosts()) GTEST_SKIP() << "no network namespaces here";
  AgentUnderTest agent(on_host_made_by(
      "ip link set lo up; ip link add on type veth peer name off; ip addr add 10.98.0.1/24 "
      "dev on; ip addr add 10.99.0.1/24 dev off; ip link set on up"));
  EXPECT_TRUE(has(*agent.ready, {"on", "10.98.0.1"}));
  EXPECT_FALSE(has(*agent.ready, {"off", "10.99.0.1"}));
}

}  // namespace
}  // namespace hvd::test
