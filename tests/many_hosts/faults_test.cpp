// A worker, hvdrun or a host is lost, while workers of hvd work on several hosts.
#include <csignal>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

using std::chrono::seconds;

class HostFaultsTest : public ManyHostsTest {
 protected:
  // Workers that reduce for ever, two on each host; blocks until all have begun.
  Process& start_working(int hosts, const Words& options = {}) {
    make_bed({.hosts = hosts});
    for (int number = 1; number <= hosts; ++number) {
      host(number).place(binary("placed_works"), "/root/works");
    }
    Words words = options;
    words.insert(words.end(), {"-H", bed().host_list(2), "./works"});
    Process& job = start(words);
    wait_for_workers(job, "working", 2 * hosts);
    return job;
  }
};

TEST_F(HostFaultsTest, AWorkerThatIsKilledEndsTheJobAndNobodyIsLeftOnAnyHost) {
  Process& job = start_working(2);
  const auto workers = pids(host(2), "works");
  ASSERT_EQ(workers.size(), 2U);
  ASSERT_EQ(kill_one(workers.front(), SIGKILL), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 137) << end.err;
  EXPECT_NE(end.err.find("h2"), std::string::npos) << end.err;
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

TEST_F(HostFaultsTest, KillingHvdrunLeavesNobodyOnAnyHost) {
  make_bed({.hosts = 3});
  place({"e2e_stays"});
  Process& job =
      start({"-H", bed().host_list(2), "./e2e_stays", "--ignore-term", "--child", "--daemon"});
  wait_for_workers(job, "up", 6);
  EXPECT_EQ(pids(host(3), "e2e_stays").size(), 6U);  // two workers, their children, the daemons
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().signal, SIGKILL);
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

TEST_F(HostFaultsTest, KillingAnAgentEndsTheJobAndLeavesNobody) {
  Process& job = start_working(2, {"--grace", "1"});
  const auto agent = [&]() -> pid_t {
    for (const auto& seen : host(1).processes()) {
      // Its reapers run the same program, but call themselves so.
      const auto name = read_file(cat("/proc/", seen.pid, "/comm"));
      if (name.starts_with("hvd-agent")) return seen.pid;
    }
    return -1;
  }();
  ASSERT_GT(agent, 0);
  ASSERT_EQ(kill_one(agent, SIGKILL), 0);
  const ExitStatus end = job.wait();
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.err.find("h1"), std::string::npos) << end.err;
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

TEST_F(HostFaultsTest, AHostThatCrashesEndsTheJobWithItsName) {
  Process& job = start_working(3, {"--heartbeat-timeout", "1.5"});
  bed().crash(host(3));
  const ExitStatus end = job.wait();
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.err.find("h3"), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("h1:"), std::string::npos) << end.err;
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

// Both notice it by their heartbeats; once the network is back the agent joins again.
TEST_F(HostFaultsTest, AWaitingAgentAndHvdrunNoticeThatTheOtherIsCutOff) {
  make_bed({.hosts = 2});
  place({"hvdrun", "hvd-agent"});
  Process& job = start({"--join-bind", "10.77.0.254:7000", "--token-file", "job-token", "-np", "3",
                        "--start-timeout", "300", "--verbose", "true"});
  ASSERT_TRUE(job.wait_for_error("to join")) << job.err();
  const auto joins = [&](int number, const char* slots) {
    host(number).place(bed().head().files() / "root" / "job-token");
    return host(number).start({"./hvdrun", "agent", "--join", "tls://10.77.0.254:7000",
                               "--token-file", "job-token", "--slots", slots});
  };
  const auto waits = joins(1, "1");
  ASSERT_TRUE(job.wait_for_error("host h1 has joined")) << job.err();

  bed().cut_off(host(1));
  ASSERT_TRUE(
      job.wait_for_error("the agent of host h1, which had joined, is lost: it gave no sign "
                         "of life for 3 s"))
      << job.err();
  const auto lost = job.err().size();
  ASSERT_TRUE(
      waits->wait_for_error("the job at 10.77.0.254:7000 was lost before this machine had "
                            "its turn: it gave no sign of life for 3 s; trying again"))
      << waits->err();

  bed().heal();
  ASSERT_TRUE(job.wait_for_error("host h1 has joined", kGenerous, lost)) << job.err();
  const auto other = joins(2, "2");
  EXPECT_EQ(job.wait().code, 0) << job.err();
  EXPECT_EQ(waits->wait().code, 0) << waits->err();
  EXPECT_EQ(other->wait().code, 0) << other->err();
}

TEST_F(HostFaultsTest, AHostThatIsCutOffFreezesBeforeTheVerdictAndIsClearedAfterTheOrphanTimeout) {
  Process& job = start_working(2, {"--heartbeat-timeout", "2", "--orphan-timeout", "12"});
  bed().cut_off(host(2));
  const ExitStatus end = job.wait();
  EXPECT_EQ(states(host(2), "works"), "TT");
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.err.find("h2"), std::string::npos) << end.err;
  EXPECT_TRUE(eventually([&] { return pids(host(2), "works").empty(); }));
  EXPECT_TRUE(pids(host(1), "works").empty());
  bed().heal();
}

TEST_F(HostFaultsTest, AHostThatCrashedMayTakePartAgainAfterItsBoot) {
  Process& job = start_working(2, {"--heartbeat-timeout", "1.5"});
  bed().crash(host(1));
  EXPECT_NE(job.wait().code, 0);
  bed().boot(host(1));
  const ExitStatus end = run_job({"-H", bed().host_list(2), "./works", "--steps", "10"});
  EXPECT_EQ(end.code, 0) << end.err;
}

TEST_F(HostFaultsTest, CtrlCEndsTheWorkersOfAllHosts) {
  Process& job = start_working(3);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait().code, 130);
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

}  // namespace
}  // namespace hvd::test
