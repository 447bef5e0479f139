// Jobs on hosts whose firewalls let through only what docs/networking.md says: the commands of that
// page are run as they stand there.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/port_range.h"
#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

// As in the commands of the page.
constexpr const char* kRange = "40000-40999";
constexpr PortRange kPorts{40000, 40999};

// The block of docs/networking.md that raises the firewall.
std::string commands_of_the_page() {
  std::ostringstream page;
  page << std::ifstream(HVD_SOURCE_DIR "/docs/networking.md").rdbuf();
  const std::string text = page.str();
  const auto first = text.find("iptables -A INPUT");
  const auto end = text.find("```", first);
  if (first == std::string::npos || end == std::string::npos) return {};
  return text.substr(first, end - first);
}

// "connect to 10.77.0.1:40007: " is in `text`, with some port of the range.
bool names_a_port_of(const std::string& text, const std::string& address) {
  for (auto at = text.find(address + ":"); at != std::string::npos;
       at = text.find(address + ":", at + 1)) {
    const auto digits = text.substr(at + address.size() + 1, 5);
    const auto port = parse_number<std::uint16_t>(digits);
    if (port && kPorts.contains(*port)) return true;
  }
  return false;
}

class PortsTest : public ManyHostsTest {
 protected:
  void make_ports_bed(int hosts, bool ipv6 = true) {
    make_bed({.hosts = hosts, .ipv6 = ipv6});
    place({"train"});
    for (int number = 1; number <= hosts; ++number) host(number).place(kText);
  }
  // The head's, too.
  void raise_firewalls(const std::string& commands) {
    for (int number = 0; number <= bed().size(); ++number) raise_firewall(at(number), commands);
  }
  Host& at(int number) { return number == 0 ? bed().head() : host(number); }

  static void raise_firewall(Host& on, const std::string& commands) {
    ASSERT_NE(commands, "") << "docs/networking.md has no commands of iptables";
    const std::string other = replace_all(commands, "iptables", "ip6tables");
    const auto raised = on.shell(cat("set -e\n", commands, other));
    ASSERT_EQ(raised.code, 0) << raised.err;
  }
  static std::string replace_all(std::string text, const std::string& word, const std::string& by) {
    for (auto found = text.find(word); found != std::string::npos;
         found = text.find(word, found + by.size())) {
      text.replace(found, word.size(), by);
    }
    return text;
  }

  static Words training(Words words, const std::string& steps) {
    words.insert(words.begin(), {"--port-range", kRange});
    words.insert(words.end(), {"./train", "--text", "LICENSE", "--steps", steps, "--log-every", "3",
                               "--batch", "32", "--hidden", "16"});
    return words;
  }

  // Two hosts, each with an agent that joins where hvdrun says, train as four workers.
  void expect_joined_training(const std::string& announced, Words words) {
    words.insert(words.end(), {"--join-bind", "10.77.0.254:0", "--token-file", "/root/job-token"});
    Process& job = start(training(std::move(words), "12"));
    ASSERT_TRUE(job.wait_for_error(announced)) << job.err();
    const std::string said = job.err();
    ASSERT_TRUE(names_a_port_of(said, "10.77.0.254")) << said;
    const auto port = said.substr(said.find(announced) + announced.size(), 5);

    place({"hvdrun", "hvd-agent"});
    std::vector<std::unique_ptr<Process>> agents;
    for (int number = 1; number <= 2; ++number) {
      host(number).place(bed().head().files() / "root" / "job-token");
      agents.push_back(
          host(number).start({"./hvdrun", "agent", "--join", cat("tls://10.77.0.254:", port),
                              "--token-file", "job-token", "--slots", "2"}));
    }
    const auto end = job.wait();
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    EXPECT_NE(end.out.find("weights identical on all 4 workers"), std::string::npos) << end.out;
    for (const auto& agent : agents) EXPECT_EQ(agent->wait().code, 0) << agent->err();
  }

  // The addresses at which a host listens, by port; sshd's is left out.
  static std::multimap<int, std::string> listeners(Host& on) {
    std::multimap<int, std::string> found;
    std::istringstream lines(on.run({"ss", "-Hltn"}).out);
    std::string state;
    std::string received;
    std::string sent;
    std::string local;
    std::string peer;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      words >> state >> received >> sent >> local >> peer;
      const auto colon = local.rfind(':');
      const int port = parse_number<int>(local.substr(colon + 1)).value_or(-1);
      if (port != 22) found.emplace(port, local.substr(0, colon));
    }
    return found;
  }
  // Every listener has a port of the range, at an address of its own.
  void expect_listeners_in_range(Host& on, std::size_t at_least) {
    const auto found = listeners(on);
    EXPECT_GE(found.size(), at_least) << on.name();
    for (const auto& [port, address] : found) {
      EXPECT_TRUE(kPorts.contains(static_cast<std::uint16_t>(port)))
          << on.name() << " " << address << ":" << port;
      EXPECT_TRUE(address == on.ipv4() || address == cat("[", on.ipv6(), "]"))
          << on.name() << " listens on " << address << ":" << port;
    }
  }
};

TEST_F(PortsTest, AJobRunsThroughFirewallsThatLetThroughOnlyTheRangeAndSsh) {
  make_ports_bed(3);
  raise_firewalls(commands_of_the_page());
  const auto end = run_job(training({"-H", bed().host_list(2)}, "12"));
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_NE(end.out.find("weights identical on all 6 workers"), std::string::npos) << end.out;
}

TEST_F(PortsTest, WorkersOnTheMachineOfHvdrunAreReachedThroughItsFirewall) {
  make_ports_bed(1);
  bed().head().place(binary("train"));
  bed().head().place(kText);
  raise_firewalls(commands_of_the_page());
  const auto end = run_job(training({"-H", "localhost:2,h1:2"}, "12"));
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_NE(end.out.find("weights identical on all 4 workers"), std::string::npos) << end.out;
}

TEST_F(PortsTest, AKilledWorkerIsReplacedAndEveryListenerIsInTheRange) {
  make_ports_bed(2);
  raise_firewalls(commands_of_the_page());
  Process& job = start(training({"-H", bed().host_list(2), "--min-np", "2"}, "100000000"));
  ASSERT_TRUE(job.wait_for_output("step     1")) << job.out() << job.err();
  expect_listeners_in_range(bed().head(), 1);
  for (int number = 1; number <= 2; ++number) expect_listeners_in_range(host(number), 2);

  const auto workers = pids(host(2), "train");
  ASSERT_EQ(workers.size(), 2U);
  ASSERT_EQ(kill_one(workers.front(), SIGKILL), 0);
  EXPECT_TRUE(job.wait_for_output(": 4 workers go on")) << job.out() << job.err();
  for (int number = 1; number <= 2; ++number) expect_listeners_in_range(host(number), 2);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait().code, 130);
}

TEST_F(PortsTest, AgentsJoinAtAPortOfTheRange) {
  make_ports_bed(2);
  raise_firewalls(commands_of_the_page());
  expect_joined_training("waiting at 10.77.0.254:", {"-H", bed().host_list(2)});
}

TEST_F(PortsTest, AgentsJoinAnElasticJobAtAPortOfTheRange) {
  make_ports_bed(2);
  raise_firewalls(commands_of_the_page());
  expect_joined_training("agents may join at 10.77.0.254:", {"--min-np", "4"});
}

// A program that meets as torch's env:// does: rank 0 listens at MASTER_PORT.
TEST_F(PortsTest, MasterPortIsOneOfTheRange) {
  make_ports_bed(2, false);
  raise_firewalls(commands_of_the_page());
  const std::string program =
      "if [ $RANK = 0 ]; then echo port $MASTER_PORT.; exec timeout 60 python3 -c \"import os, "
      "socket; s = socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))"
      "); s.accept()\"; fi; until (exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT) 2>/dev/null; do "
      "sleep 0.05; done; echo connected.";
  const auto end = run_job({"--port-range", kRange, "--tag-output", "none", "-H", "h1:1,h2:1",
                            "timeout", "60", "bash", "-c", program});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_NE(end.out.find("connected."), std::string::npos) << end.out << end.err;
  const auto said = end.out.find("port ");
  ASSERT_NE(said, std::string::npos) << end.out;
  const auto port = parse_number<std::uint16_t>(end.out.substr(said + 5, 5));
  EXPECT_TRUE(port && kPorts.contains(*port)) << end.out;
}

TEST_F(PortsTest, APortThatAFirewallDropsIsNamedWithItsHostAndTheHostThatTried) {
  make_ports_bed(2, false);
  raise_firewalls(replace_all(commands_of_the_page(), "40000:40999", "41000:41999"));
  const auto end = run_job(training({"-H", bed().host_list(1)}, "12"));
  EXPECT_EQ(end.code, 1);
  for (const char* const words :
       {"h1: reach: this machine cannot be reached from it: connect to 10.77.0.254:40",
        "h2: reach: no address of it can be reached from host h1: connect to 10.77.0.2:40",
        ": no answer within 2 s (does a firewall drop it?)"}) {
    EXPECT_NE(end.err.find(words), std::string::npos) << words << "\n" << end.err;
  }
  EXPECT_TRUE(names_a_port_of(end.err, "10.77.0.2")) << end.err;
  EXPECT_TRUE(names_a_port_of(end.err, "10.77.0.254")) << end.err;
}

// The hosts form a ring, in which each tries its neighbour: these two are not neighbours.
TEST_F(PortsTest, AWorkerThatAFirewallHidesIsNamedWithItsPort) {
  make_ports_bed(4, false);
  bed().cut(host(1), host(3));
  const auto end = run_job(training({"-H", bed().host_list(1), "--start-timeout", "3"}, "12"));
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("host h3 cannot reach rank 0 on h1#0: connect to 10.77.0.1:40"),
            std::string::npos)
      << end.err;
  EXPECT_TRUE(names_a_port_of(end.err, "10.77.0.1")) << end.err;
  EXPECT_NE(end.err.find(" timed out (does a firewall drop it?)"), std::string::npos) << end.err;
}

// How many workers they get is known when their agents have counted cores.
TEST_F(PortsTest, ARangeThatIsTooSmallForAHostIsAnErrorBeforeAWorkerStarts) {
  make_ports_bed(2);
  const auto end = run_job({"--port-range", "40000-40001", "-H", "h1,h2", "echo", "started"});
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.out.find("started"), std::string::npos) << end.out;
  for (const char* const words :
       {"h1: reach: --port-range 40000-40001 has too few ports (2) for host h1, which needs ",
        "h2: reach: --port-range 40000-40001 has too few ports (2) for host h2, which needs "}) {
    EXPECT_NE(end.err.find(words), std::string::npos) << words << "\n" << end.err;
  }
}

TEST_F(PortsTest, ARangeWhosePortsAreAllTakenIsAnErrorThatNamesTheHost) {
  make_ports_bed(1);
  const auto taker = host(1).start({"python3", "-c",
                                    "import signal, socket; s = [socket.create_server(('0.0.0.0', "
                                    "p)) for p in range(40000, 40010)]"
                                    "; print('taken', flush=True); signal.pause()"});
  ASSERT_TRUE(taker->wait_for_output("taken")) << taker->err();
  const auto end = run_job({"--port-range", "40000-40009", "-H", "h1:1", "echo", "started"});
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(
      end.err.find(
          "host h1 cannot take part: reach: listen on all addresses: all ports of --port-range "
          "40000-40009 (10) are taken"),
      std::string::npos)
      << end.err;
  taker->signal(SIGTERM);
  taker->wait();
}

}  // namespace
}  // namespace hvd::test
