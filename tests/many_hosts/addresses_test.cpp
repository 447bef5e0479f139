// hvdrun on pretend hosts: the addresses that it chooses, its messages about unreachable hosts, and
// how it notices the loss of a host.
#include <csignal>
#include <gtest/gtest.h>
#include <optional>
#include <sched.h>

#include "base/text.h"
#include "tests/support/process.h"
#include "tests/testbed/hosts.h"

namespace hvd::test {
namespace {

// In the workers' command lines, and in no other.
constexpr const char* kSleepMark = "1000000.25";

class ManyHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = HostBed::why_impossible()) GTEST_SKIP() << *why;
  }
  void make(BedOptions options) { bed_.emplace(std::move(options)); }
  HostBed& bed() { return *bed_; }

  static std::vector<std::string> command(std::vector<std::string> words,
                                          const std::string& script) {
    words.insert(words.begin(), binary("hvdrun"));
    words.insert(words.end(), {"-wd", "/root", "bash", "-c", script});
    return words;
  }
  std::unique_ptr<Process> start(std::vector<std::string> words, const std::string& script) {
    return bed().head().start(command(std::move(words), script));
  }
  ExitStatus run(std::vector<std::string> words, const std::string& script) {
    return bed().head().run(command(std::move(words), script));
  }
  // States of the workers' processes on a host: "S", "SS", "T".
  static std::string states(const Host& host) {
    std::string result;
    for (const auto& seen : host.processes()) {
      if (seen.command_line.find(kSleepMark) != std::string::npos) result += seen.state;
    }
    return result;
  }
  // Nothing but sshd is left.
  static bool is_clean(const Host& host) {
    for (const auto& seen : host.processes()) {
      if (seen.command_line.find("hvd-agent") != std::string::npos) return false;
    }
    return states(host).empty();
  }
  // Two workers that run until they are stopped.
  std::unique_ptr<Process> start_sleepers(std::vector<std::string> words) {
    words.insert(words.end(), {"-H", "h1:1,h2:1"});
    auto job = start(std::move(words), cat("echo up; exec sleep ", kSleepMark));
    EXPECT_TRUE(job->wait_for_output("[0]<stdout>:up")) << job->err();
    EXPECT_TRUE(job->wait_for_output("[1]<stdout>:up")) << job->err();
    return job;
  }

 private:
  std::optional<HostBed> bed_;
};

constexpr const char* kTell =
    "echo $(hostname) $HVD_RENDEZVOUS_ADDR $HOROVOD_GLOO_IFACE $MASTER_ADDR $HOME";

TEST_F(ManyHosts, run_workers_that_know_where_they_are_and_find_the_rendezvous) {
  make({.hosts = 2, .ipv6 = false});
  const auto job = run({"-H", "h1:2,h2:1"}, kTell);
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_NE(job.out.find("[1]<stdout>:h1 10.77.0.254 eth0 10.77.0.1 /root\n"), std::string::npos)
      << job.out;
  EXPECT_NE(job.out.find("[2]<stdout>:h2 10.77.0.254 eth0 10.77.0.1 /root\n"), std::string::npos)
      << job.out;
}

TEST_F(ManyHosts, need_no_ipv4) {
  make({.hosts = 2, .ipv4 = false});
  const auto job = run({"-H", "h1:1,h2:1"}, kTell);
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_NE(job.out.find("[1]<stdout>:h2 fd77::254 eth0 fd77::1 /root\n"), std::string::npos)
      << job.out;
}

TEST_F(ManyHosts, have_as_many_slots_as_their_agents_find_gpus_or_else_cores) {
  make({.hosts = 3, .ipv6 = false});
  bed().host(1).shell("touch /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidiactl");
  // Processes that sshd starts there have this one core.
  bed().host(2).shell(cat("taskset -p -c ", ::sched_getcpu(), " $(pgrep -o sshd)"));
  const auto job = run({"--verbose", "-H", "h1,h2,h3:1"}, "echo $HVD_LOCAL_SIZE on $HVD_HOSTNAME");
  EXPECT_EQ(job.code, 0) << job.err;
  for (const char* const line :
       {"[2]<stdout>:3 on h1\n", "[3]<stdout>:1 on h2\n", "[4]<stdout>:1 on h3\n"}) {
    EXPECT_NE(job.out.find(line), std::string::npos) << line << job.out;
  }
  EXPECT_NE(job.err.find("hvdrun: host h1: 3 slots, one for each GPU\n"), std::string::npos)
      << job.err;
  EXPECT_NE(job.err.find("hvdrun: host h2: 1 slot, for its core\n"), std::string::npos) << job.err;
  EXPECT_EQ(job.err.find("hvdrun: host h3: "), std::string::npos) << job.err;
  // The devices that the workers are to see count, wherever they were set.
  const auto fewer = run({"--env", "CUDA_VISIBLE_DEVICES=0,2", "-H", "h1"}, "echo $HVD_SIZE");
  EXPECT_NE(fewer.out.find("[1]<stdout>:2\n"), std::string::npos) << fewer.out << fewer.err;
}

// Their names stand for IPv6 addresses first.
TEST_F(ManyHosts, meet_however_each_of_them_is_named) {
  make({.hosts = 2});
  for (Host* const host : {&bed().host(1), &bed().host(2), &bed().head()}) {
    host->place(binary("allreduce_once"));
  }
  for (const std::string hosts : {"h1,10.77.0.2", "10.77.0.1,h2", "localhost,10.77.0.2,h1"}) {
    const auto job =
        bed().head().run({binary("hvdrun"), "-H", hosts, "-wd", "/root", "./allreduce_once"});
    EXPECT_EQ(job.code, 0) << hosts << ": " << job.err;
  }
}

TEST_F(ManyHosts, may_be_this_machine_and_others) {
  make({.hosts = 1, .ipv6 = false});
  const auto job = run({"-H", "localhost:1,h1:1,head:1"}, kTell);
  EXPECT_EQ(job.code, 0) << job.err;
  for (const char* line : {"[0]<stdout>:head 10.77.0.254 eth0 10.77.0.254 /root\n",
                           "[1]<stdout>:h1 10.77.0.254 eth0 10.77.0.254 /root\n",
                           "[2]<stdout>:head 10.77.0.254 eth0 10.77.0.254 /root\n"}) {
    EXPECT_NE(job.out.find(line), std::string::npos) << line << job.out;
  }
}

TEST_F(ManyHosts, are_on_the_interface_that_the_person_wants) {
  make({.hosts = 2, .ipv6 = false});
  const auto wrong = run({"--network-interface", "ib0", "-H", "h1,h2"}, "true");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("h2"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("no usable address is on the network interfaces ib0 "
                           "(--network-interface); there are lo (127.0.0.1"),
            std::string::npos)
      << wrong.err;
  EXPECT_NE(wrong.err.find("eth0 (10.77.0.2)"), std::string::npos) << wrong.err;
  EXPECT_EQ(run({"--network-interface", "ib0,eth0", "-H", "h1,h2"}, "true").code, 0);
}

TEST_F(ManyHosts, are_named_if_the_others_cannot_reach_them) {
  make({.hosts = 2, .ipv6 = false});
  bed().cut(bed().host(1), bed().host(2));
  const auto job = run({"-H", "h1,h2"}, "true");
  EXPECT_EQ(job.code, 1);
  EXPECT_NE(job.err.find("no address of it can be reached from host h2"), std::string::npos)
      << job.err;
  EXPECT_NE(job.err.find("10.77.0.1"), std::string::npos) << job.err;
  EXPECT_NE(job.err.find("no address of it can be reached from host h1"), std::string::npos)
      << job.err;
  EXPECT_TRUE(is_clean(bed().host(1)));
  EXPECT_TRUE(is_clean(bed().host(2)));
}

TEST_F(ManyHosts, refuse_an_advertised_address_that_is_not_this_machine_s) {
  make({.hosts = 1, .ipv6 = false});
  const auto job = run({"--advertise-address", "10.77.0.99", "-H", "h1"}, "true");
  EXPECT_EQ(job.code, 1);
  EXPECT_NE(job.err.find("10.77.0.99"), std::string::npos) << job.err;
  EXPECT_NE(job.err.find("--advertise-address"), std::string::npos) << job.err;
}

TEST_F(ManyHosts, fail_with_the_name_of_one_that_is_cut_off_which_freezes_and_then_clears_itself) {
  make({.hosts = 2, .ipv6 = false});
  const auto job = start_sleepers({"--heartbeat-timeout", "1.5", "--orphan-timeout", "6"});
  bed().cut_off(bed().host(2));
  EXPECT_TRUE(eventually([&] { return states(bed().host(2)) == "T"; }));
  const auto end = job->wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("host h2"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("no sign of life for 1.5 s"), std::string::npos) << end.err;
  EXPECT_TRUE(is_clean(bed().host(1)));
  EXPECT_EQ(states(bed().host(2)), "T");
  EXPECT_TRUE(eventually([&] { return is_clean(bed().host(2)); }));
}

TEST_F(ManyHosts, are_not_taken_for_lost_while_much_is_sent_to_them_slowly) {
  make({.hosts = 2, .ipv6 = false});
  bed().shape(bed().host(1), {.rate = "20mbit"});
  // Eight launches of half a MiB are more than a second of this link.
  std::string value(100'000, 'x');
  std::vector<std::string> words{"--heartbeat-timeout", "1.5", "-H", "h1:8,h2:1"};
  for (int i = 0; i < 5; ++i) words.insert(words.end(), {"--env", cat("MUCH_", i, "=", value)});
  const auto job = run(words, "true");
  EXPECT_EQ(job.code, 0) << job.err;
}

TEST_F(ManyHosts, may_come_by_themselves) {
  make({.hosts = 2, .ipv6 = false});
  const auto job = start(
      {"-H", "h1:1,h2:2", "--join-bind", "10.77.0.254:7000", "--token-file", "/root/job-token"},
      kTell);
  const auto token = bed().head().files() / "root" / "job-token";
  ASSERT_TRUE(job->wait_for_error("waiting at 10.77.0.254:7000 for h1 and h2")) << job->err();
  std::vector<std::unique_ptr<Process>> agents;
  for (const int number : {2, 1}) {
    Host& host = bed().host(number);
    host.place(binary("hvdrun"));
    host.place(binary("hvd-agent"));
    host.place(token);
    agents.push_back(host.start({"./hvdrun", "agent", "--join", "tls://10.77.0.254:7000",
                                 "--token-file", "job-token", "--slots", "2"}));
  }
  const auto end = job->wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("[0]<stdout>:h1 10.77.0.254 eth0 10.77.0.1 /root\n"), std::string::npos)
      << end.out;
  EXPECT_NE(end.out.find("[2]<stdout>:h2 10.77.0.254 eth0 10.77.0.1 /root\n"), std::string::npos)
      << end.out;
  for (const auto& agent : agents) EXPECT_EQ(agent->wait().code, 0) << agent->err();
}

// Another job listens at the address that is tried first.
TEST_F(ManyHosts, join_the_job_of_their_token_at_whichever_address_of_the_name_it_is) {
  make({.hosts = 2, .ipv6 = false});
  Host& agents = bed().host(1);
  for (Host* const host : {&agents, &bed().host(2)}) {
    host->place(binary("hvdrun"));
    host->place(binary("hvd-agent"));
  }
  const auto job = start(
      {"-np", "1", "--join-bind", "10.77.0.254:7000", "--token-file", "/root/job-token"}, kTell);
  const auto other = bed().host(2).start({"./hvdrun", "-np", "1", "--join-bind", "10.77.0.2:7000",
                                          "--token-file", "other-token", "true"});
  ASSERT_TRUE(job->wait_for_error("waiting at 10.77.0.254:7000")) << job->err();
  ASSERT_TRUE(other->wait_for_error("waiting at 10.77.0.2:7000")) << other->err();
  agents.place(bed().head().files() / "root" / "job-token");
  agents.shell("printf '10.77.0.2 driver\\n10.77.0.254 driver\\n' >>/etc/hosts");

  const auto agent =
      agents.run({"./hvdrun", "agent", "--join", "tls://driver:7000", "--token-file", "job-token"});
  EXPECT_EQ(agent.code, 0) << agent.err;
  EXPECT_EQ(job->wait().code, 0) << job->err();
  EXPECT_TRUE(other->wait_for_error("refused a connection")) << other->err();
  other->signal(SIGTERM);
  EXPECT_EQ(other->wait().code, 143);
}

TEST_F(ManyHosts, are_let_go_when_hvdrun_is_interrupted_while_one_does_not_answer) {
  make({.hosts = 2, .ipv6 = false});
  bed().cut_off(bed().host(2));
  const auto job = start({"-H", "h1,h2"}, "true");
  ASSERT_TRUE(job->wait_for_error("waiting for h2")) << job->err();
  EXPECT_NE(job->err().find("1 of 2 hosts is ready"), std::string::npos) << job->err();
  job->signal(SIGINT);
  EXPECT_EQ(job->wait().code, 130);
  EXPECT_TRUE(is_clean(bed().host(1)));
}

}  // namespace
}  // namespace hvd::test
