// A host or the way to it is the fault, while the world may change: the job goes on, nothing that
// was committed is lost, and no two worlds commit.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"
#include "tests/many_hosts/steps_job.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

class ElasticOnHostsTest : public ManyHostsTest {
 protected:
  // Blocks until a world of `size` works. `hosts`: empty: two slots on each.
  Process& start_training(int count, int size, const StepsJobOptions& options) {
    make_bed({.hosts = count});
    return start_steps(options, size);
  }
  Process& start_steps(StepsJobOptions all, int size) {
    if (all.hosts.empty()) all.hosts = bed().host_list(2);
    all.flags.insert(all.flags.begin(),
                     {"--heartbeat-timeout", "1", "--blacklist-cooldown-range", "0.2", "1"});
    all.program_flags.push_back("--verify");
    job_.emplace(bed(), all);
    expect_world(job_->process(), size);
    return job_->process();
  }

  std::int64_t expect_world(Process& job, int size, std::int64_t after = 0) {
    const auto world = step_logs().wait_for_world(size, after);
    EXPECT_NE(world, 0) << "no world of " << size << "\n" << step_logs().summary() << job.err();
    EXPECT_TRUE(step_logs().wait_for_steps_more(5)) << step_logs().summary();
    return world;
  }
  ExitStatus finish(Process& job, const StepLogRules& rules = {}) {
    job_->say_enough();
    ExitStatus end = job.wait();
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(step_logs().errors(rules), "") << end.err;
    EXPECT_TRUE(nobody_left()) << names_of_strangers();
    return end;
  }
  void expect_in(const std::string& text, const Words& parts) {
    for (const auto& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" is not in:\n" << text;
    }
  }
  // Packets of `from` are dropped where they arrive at `to` ("-A"), or no more ("-D").
  static void change_drops(const std::string& change, Host& to, Host& from,
                           const std::string& which = "") {
    for (const auto& [tables, address] :
         {std::pair("iptables", from.ipv4()), std::pair("ip6tables", from.ipv6())}) {
      const auto changed =
          to.shell(cat(tables, " ", change, " INPUT -s ", address, " ", which, " -j DROP"));
      EXPECT_EQ(changed.code, 0) << changed.err;
    }
  }
  StepsJob& steps() { return *job_; }
  StepLogs& step_logs() { return job_->step_logs(); }

 private:
  std::optional<StepsJob> job_;
};

TEST_F(ElasticOnHostsTest, AWorkerThatIsKilledOnAnyHostIsReplacedThere) {
  Process& job = start_training(2, 4, {.flags = {"-np", "4", "--min-np", "2"}});
  std::int64_t world = step_logs().newest_world();
  for (int number = 1; number <= 2; ++number) {
    const auto workers = pids(host(number), "elastic_steps");
    ASSERT_EQ(workers.size(), 2U);
    ASSERT_EQ(kill_one(workers.front(), SIGKILL), 0);
    world = expect_world(job, 4, world);
  }
  finish(job);
}

TEST_F(ElasticOnHostsTest, AHostThatCrashesIsDoneWithoutAndComesBackAfterItsBoot) {
  Process& job = start_training(3, 6, {.flags = {"-np", "6", "--min-np", "2"}});
  auto world = step_logs().newest_world();
  bed().crash(host(1));  // rank 0's
  world = expect_world(job, 4, world);
  bed().boot(host(1));
  expect_world(job, 6, world);
  const auto end = finish(job);
  expect_in(end.err, {"h1", "--heartbeat-timeout"});
}

// The way to h1 is a child of hvdrun, as the agent that dies is.
TEST_F(ElasticOnHostsTest, AHostBehindAProxyStaysWhenTheLocalAgentDies) {
  make_bed({.hosts = 2});
  ASSERT_EQ(bed().head().shell("printf 'Host h1\\n  ProxyJump h2\\n' >.ssh/config").code, 0);
  Process& job =
      start_steps({.hosts = "localhost:1,h1:1", .flags = {"-np", "2", "--min-np", "1"}}, 2);
  const auto workers = pids(host(1), "elastic_steps");
  for (int time = 1; time <= 2; ++time) {
    const auto world = step_logs().newest_world();
    const pid_t agent = steps().agent_of(bed().head());
    ASSERT_GT(agent, 0);
    ASSERT_EQ(kill_one(agent, SIGKILL), 0);
    expect_world(job, 2, world);
  }
  EXPECT_EQ(pids(host(1), "elastic_steps"), workers) << job.err();
  finish(job);
}

TEST_F(ElasticOnHostsTest, TwoHostsThatCrashAtOnceAreOneChange) {
  Process& job = start_training(3, 6, {.flags = {"-np", "6", "--min-np", "2"}});
  const auto world = step_logs().newest_world();
  bed().crash(host(2));
  bed().crash(host(3));
  expect_world(job, 2, world);
  finish(job);
}

TEST_F(ElasticOnHostsTest, AHostThatIsCutOffStandsStillBeforeTheOthersGoOnAndComesBack) {
  Process& job =
      start_training(3, 6, {.flags = {"-np", "6", "--min-np", "2", "--orphan-timeout", "600"}});
  auto world = step_logs().newest_world();
  bed().cut_off(host(2));
  ASSERT_TRUE(step_logs().wait([&] {
    const auto all = step_logs().members();
    return all.size() == 4 && step_logs().newest_world() > world;
  })) << step_logs().summary()
      << job.err();
  EXPECT_EQ(states(host(2), "elastic_steps"), "TT");
  world = expect_world(job, 4, world);
  bed().heal();
  expect_world(job, 6, world);
  // Its commits are older than those of the others without it; errors() sees that too, if it was
  // another step.
  finish(job);
}

TEST_F(ElasticOnHostsTest, AHostThatIsHeardAgainInTimeGoesOnInTheSameWorld) {
  Process& job =
      start_training(2, 4, {.flags = {"-np", "4", "--min-np", "2", "--heartbeat-timeout", "4"}});
  const auto world = step_logs().newest_world();
  bed().cut_off(host(2));
  ASSERT_TRUE(eventually([&] { return states(host(2), "elastic_steps") == "TT"; }));
  bed().heal();
  ASSERT_TRUE(
      eventually([&] { return states(host(2), "elastic_steps").find('T') == std::string::npos; }));
  EXPECT_TRUE(step_logs().wait_for_steps_more(10)) << job.err();
  EXPECT_EQ(step_logs().newest_world(), world) << step_logs().summary();
  finish(job);
}

// The packets are those in which a rank on h2 proves the token to rank 0. Five of them are more
// than the connections that it makes in one attempt.
TEST_F(ElasticOnHostsTest, ResetsWhileAWorldFormsAreNotWaitedFor) {
  Process& job = start_training(2, 3,
                                {.hosts = "h1:1,h2:2",
                                 .flags = {"-np", "3", "--min-np", "2", "--port-range",
                                           "40000-40099", "--start-timeout", "600"}});
  for (const int resets : {1, 5}) {
    const auto world = step_logs().newest_world();
    const auto ruled = host(1).shell(
        cat("for tables in iptables ip6tables; do $tables -F INPUT && $tables -A INPUT -p tcp "
            "--dport 40000:40099 -m connbytes --connbytes 4:4 --connbytes-dir original "
            "--connbytes-mode packets -m limit --limit 1/hour --limit-burst ",
            resets, " -j REJECT --reject-with tcp-reset || exit 1; done"));
    if (ruled.code != 0) GTEST_SKIP() << ruled.err;
    const auto workers = pids(host(2), "elastic_steps");
    ASSERT_EQ(workers.size(), 2U);
    ASSERT_EQ(kill_one(workers.front(), SIGKILL), 0);
    expect_world(job, 3, world);
    const auto counted = host(1).shell(
        "for tables in iptables ip6tables; do $tables -vnxL INPUT; done | awk '/REJECT/ { sum += "
        "$1 } "
        "END { print sum }'");
    EXPECT_EQ(counted.out, cat(resets, "\n")) << counted.err;
  }
  finish(job);
}

// hvdrun hears both hosts all the while: nobody is to be blamed, and nobody may be replaced.
TEST_F(ElasticOnHostsTest, HostsThatDoNotReachEachOtherForAWhileGoOnInTheSameWorld) {
  Process& job = start_training(3, 6, {.flags = {"-np", "6", "--min-np", "2"}});
  const auto world = step_logs().newest_world();
  bed().cut(host(1), host(2));
  const auto stood = [&] {
    const auto step = step_logs().newest_step();
    return !step_logs().wait([&] { return step_logs().newest_step() > step; },
                             std::chrono::seconds(2));
  };
  ASSERT_TRUE(eventually(stood)) << step_logs().summary();
  EXPECT_EQ(states(host(2), "elastic_steps").find('T'), std::string::npos) << "its agent is heard";
  bed().heal();
  EXPECT_TRUE(step_logs().wait_for_steps_more(10)) << job.err();
  EXPECT_EQ(step_logs().newest_world(), world) << step_logs().summary();
  finish(job);
}

// Packets with data get lost, and empty ones do not: the agents reach each other's hosts.
TEST_F(ElasticOnHostsTest, NightlyAWorkerThatDoesNotReachRankZeroForLongIsStartedAgain) {
  // Of the workers, not of hvdrun: how long they try to reach each other.
  Process& job = start_training(3, 6,
                                {.flags = {"-np", "6", "--min-np", "2", "--collective-timeout", "2",
                                           "--env", "HVD_START_TIMEOUT=3"}});
  const auto world = step_logs().newest_world();
  const std::string with_data = "-m length --length 100:65535";
  change_drops("-A", host(1), host(2), with_data);
  ASSERT_TRUE(
      job.wait_for_error("h2#0 cannot take part in the world (host h2 cannot reach rank 0 on h1#0"))
      << job.err();
  change_drops("-D", host(1), host(2), with_data);
  expect_world(job, 6, world);
  const auto end = finish(job);
  EXPECT_EQ(end.err.find("sign of life"), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("host h2: reach"), std::string::npos) << end.err;
}

// Packets between two of three hosts get lost. hvdrun and the third host reach both all the while.
struct LostWay {
  int from;
  int to;
  bool both_ways;
};

class LostWayTest : public ElasticOnHostsTest, public testing::WithParamInterface<LostWay> {
 protected:
  Process& start_and_cut(const Words& more_flags = {}) {
    Words flags{"-np", "3",     "--min-np",           "1", "--collective-timeout",
                "2",   "--env", "HVD_START_TIMEOUT=3"};
    flags.insert(flags.end(), more_flags.begin(), more_flags.end());
    Process& job = start_training(3, 3, {.hosts = "h1:1,h2:1,h3:1", .flags = flags});
    world_ = step_logs().newest_world();
    const LostWay& way = GetParam();
    if (way.both_ways) {
      bed().cut(host(way.from), host(way.to));
    } else {
      change_drops("-A", host(way.to), host(way.from));
    }
    return job;
  }
  void heal() {
    bed().heal();
    const LostWay& way = GetParam();
    if (!way.both_ways) change_drops("-D", host(way.to), host(way.from));
  }
  std::int64_t world() const { return world_; }

 private:
  std::int64_t world_ = 0;
};

TEST_P(LostWayTest, OneOfTwoHostsThatLoseEachOtherRestsUntilItReachesTheOther) {
  Process& job = start_and_cut();
  const int newer = std::max(GetParam().from, GetParam().to);
  const int older = std::min(GetParam().from, GetParam().to);
  ASSERT_TRUE(job.wait_for_error(cat("host h", newer, ": reach: "))) << job.err();
  ASSERT_TRUE(job.wait_for_error(cat("no address of it can be reached from host h", older)))
      << job.err();
  const auto smaller = expect_world(job, 2, world());
  heal();
  expect_world(job, 3, smaller);
  const auto end = finish(job);
  EXPECT_EQ(end.err.find(cat("host h", older, ": reach: ")), std::string::npos) << end.err;
}

std::string name_of_way(const testing::TestParamInfo<LostWay>& tested) {
  const LostWay& way = tested.param;
  return cat("H", way.from, way.both_ways ? "AndH" : "ToH", way.to);
}

INSTANTIATE_TEST_SUITE_P(Pairs, LostWayTest, testing::Values(LostWay{2, 3, true}), name_of_way);
INSTANTIATE_TEST_SUITE_P(NightlyPairs, LostWayTest,
                         testing::Values(LostWay{1, 2, true}, LostWay{2, 3, false},
                                         LostWay{3, 2, false}),
                         name_of_way);

class LostWayAtTheEndTest : public LostWayTest {};

// The host of a suspended job rests, too: the state is kept by the others.
TEST_P(LostWayAtTheEndTest, AJobIsSuspendedAllTheSame) {
  Process& job = start_and_cut({"--state-file", "state"});
  job.signal(SIGTERM);
  const auto end = job.wait();
  EXPECT_EQ(end.code, 75) << end.err;
  EXPECT_TRUE(fs::exists(host(1).files() / "root/state")) << end.err;
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

INSTANTIATE_TEST_SUITE_P(Pairs, LostWayAtTheEndTest, testing::Values(LostWay{2, 3, true}),
                         name_of_way);

TEST_F(ElasticOnHostsTest, HostsComeAndGoAsTheyAreDiscoveredAndNoRankRollsBack) {
  Process& job = start_training(3, 2, {.hosts = "h1:2\n", .discovery = true});
  auto world = step_logs().newest_world();
  steps().discover("h1:2\nh2:2\nh3:1\n");
  world = expect_world(job, 5, world);
  steps().discover("h2:2\nh3:1\n");  // rank 0 goes with its host
  world = expect_world(job, 3, world);
  steps().discover("h1:1\nh2:2\nh3:1\n");
  expect_world(job, 4, world);
  finish(job);
  EXPECT_EQ(step_logs().steps_done_again(), 0) << step_logs().summary();
}

TEST_F(ElasticOnHostsTest, AnAgentThatIsToldToGoTakesItsWorkersAlongAtACommit) {
  Process& job = start_training(2, 4, {.flags = {"-np", "4", "--min-np", "2"}});
  const auto world = step_logs().newest_world();
  const pid_t agent = steps().agent_of(host(2));
  ASSERT_GT(agent, 0);
  ASSERT_EQ(kill_one(agent, SIGTERM), 0);
  expect_world(job, 2, world);
  ASSERT_TRUE(step_logs().wait([&] { return step_logs().workers_that_left() == 2; })) << job.err();
  finish(job);
  EXPECT_EQ(step_logs().steps_done_again(), 0) << step_logs().summary();
}

TEST_F(ElasticOnHostsTest, AnAgentThatIsKilledCostsItsWorkersAndIsReplaced) {
  Process& job = start_training(2, 4, {.flags = {"-np", "4", "--min-np", "2"}});
  const auto world = step_logs().newest_world();
  const pid_t agent = steps().agent_of(host(1));
  ASSERT_GT(agent, 0);
  ASSERT_EQ(kill_one(agent, SIGKILL), 0);
  expect_world(job, 4, world);
  finish(job);
}

TEST_F(ElasticOnHostsTest, NothingSurvivesHvdrunOnAnyHost) {
  Process& job = start_training(2, 4, {.flags = {"-np", "4", "--min-np", "2"}});
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().signal, SIGKILL);
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
  EXPECT_EQ(step_logs().errors({.ends_well = false}), "");
}

TEST_F(ElasticOnHostsTest, NightlyASlowTransferOfTheStateIsToldWithItsBytes) {
  Process& job = start_training(
      2, 1, {.hosts = "h1:1\n", .discovery = true, .program_flags = {"--state", "4000000"}});
  EXPECT_TRUE(step_logs().wait_for_step(10));
  bed().shape(host(2), {.rate = "4mbit"});
  steps().discover("h1:1\nh2:1\n");
  EXPECT_TRUE(job.wait_for_error("waiting for 1 worker to receive the state: ")) << job.err();
  bed().unshape(host(2));
  finish(job);
}

// The only holder of the state dies during the slow transfer of the state to a joining worker.
class LastHolderTest : public ElasticOnHostsTest {
 protected:
  Process& lose_the_last_holder(const Words& program_flags) {
    Words flags{"--state", "4000000"};
    flags.insert(flags.end(), program_flags.begin(), program_flags.end());
    Process& job =
        start_training(2, 1, {.hosts = "h1:1\n", .discovery = true, .program_flags = flags});
    EXPECT_TRUE(step_logs().wait_for_step(30));
    const fs::path checkpoint = host(1).files() / "root/checkpoint";
    if (fs::exists(checkpoint)) fs::copy_file(checkpoint, host(2).files() / "root/checkpoint");
    bed().shape(host(2), {.rate = "4mbit"});
    steps().discover("h1:1\nh2:1\n");
    EXPECT_TRUE(job.wait_for_error("generation 2: 2 workers")) << job.err();
    const auto workers = pids(host(1), "elastic_steps");
    EXPECT_EQ(workers.size(), 1U);
    if (!workers.empty()) kill_one(workers.front(), SIGKILL);
    bed().unshape(host(2));
    step_logs().read();
    reached_ = step_logs().newest_step();
    return job;
  }
  std::int64_t reached_ = 0;
};

TEST_F(LastHolderTest, WithoutALoaderTheJobEndsAndSaysThatTheStateIsLost) {
  Process& job = lose_the_last_holder({});
  const auto end = job.wait();
  EXPECT_NE(end.code, 0);
  expect_in(end.err, {"committed state"});
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
  EXPECT_EQ(step_logs().errors({.ends_well = false, .may_end_in_error = true}), "");
}

TEST_F(LastHolderTest, WithALoaderItGoesOnFromTheCheckpoint) {
  Process& job = lose_the_last_holder({"--checkpoint", "checkpoint"});
  // Every tenth step makes a checkpoint, after it is committed: the one that was copied when step
  // 30 was seen is at least that of step 20.
  const auto went_back = [&] {
    for (const auto& step_log : step_logs().step_logs()) {
      for (const auto& world : step_log.worlds) {
        const bool committed =
            !step_log.commits.empty() && step_log.commits.back().world == world.id;
        if (world.step >= 20 && world.step % 10 == 0 && world.step < reached_ && committed) {
          return true;
        }
      }
    }
    return false;
  };
  EXPECT_TRUE(step_logs().wait(went_back)) << step_logs().summary() << job.err();
  finish(job, {.may_go_back = true});
}

}  // namespace
}  // namespace hvd::test
