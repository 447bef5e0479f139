// Hosts that come, go, crash and return while a program trains on them.
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

class ElasticHostsTest : public ManyHostsTest {
 protected:
  // Also on the head, so that this machine can be one of the hosts.
  void make_training_bed(int hosts) {
    make_bed({.hosts = hosts});
    for (int number = 1; number <= hosts; ++number) equip(host(number));
    equip(bed().head());
    place_discovery_script();
  }
  static void equip(Host& host) {
    host.place(binary("train"));
    host.place(kText);
  }

  Process& start_training(const Words& options = {}) {
    Words words{"--host-discovery-script", "./discover.sh", "--discovery-interval", "0.1"};
    words.insert(words.end(), options.begin(), options.end());
    // For as long as the test wants.
    words.insert(words.end(), {"./train", "--text", "LICENSE", "--steps", "100000000",
                               "--log-every", "1000", "--batch", "32", "--hidden", "16"});
    return start(words);
  }
  static void expect_goes_on(Process& job, int workers) {
    const std::string said = cat(": ", workers, workers == 1 ? " worker" : " workers", " go on");
    EXPECT_TRUE(job.wait_for_output(said)) << said << " is not in:\n" << job.out() << job.err();
  }
  void end(Process& job) {
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().code, 130);
    EXPECT_TRUE(nobody_left()) << names_of_strangers();
  }
};

TEST_F(ElasticHostsTest, TrainingGrowsAndShrinksWithWhatTheScriptNames) {
  make_training_bed(3);
  hosts_are("h1:1\nh2:1\n");
  Process& job = start_training();
  ASSERT_TRUE(job.wait_for_output("step     1")) << job.out() << job.err();
  hosts_are("h1:1\nh2:1\nh3:1\n");
  expect_goes_on(job, 3);
  // The leader's host goes.
  hosts_are("h3:1\n");
  expect_goes_on(job, 1);
  EXPECT_EQ(job.err().find("warning"), std::string::npos) << job.err();
  EXPECT_TRUE(eventually([&] { return strangers(host(1)).empty(); })) << names_of_strangers();
  end(job);
}

TEST_F(ElasticHostsTest, HostsThatComeLaterReachTheWorkersOnThisMachine) {
  make_training_bed(2);
  hosts_are("localhost:1\n");
  Process& job = start_training();
  ASSERT_TRUE(job.wait_for_output("step     1")) << job.out() << job.err();
  hosts_are("localhost:1\nh1:1\n");
  expect_goes_on(job, 2);
  hosts_are("localhost:1\nh1:1\nh2:1\n");
  expect_goes_on(job, 3);
  EXPECT_EQ(job.err().find("warning"), std::string::npos) << job.err();
  end(job);
}

TEST_F(ElasticHostsTest, AHostThatCrashesIsDoneWithoutAndUsedAgainWhenItIsBack) {
  make_training_bed(3);
  hosts_are("h1:1\nh2:1\nh3:1\n");
  Process& job = start_training({"--heartbeat-timeout", "1", "--ssh-connect-timeout", "1",
                                 "--blacklist-cooldown-range", "0.5", "1"});
  ASSERT_TRUE(job.wait_for_output("step     1")) << job.out() << job.err();
  bed().crash(host(2));
  expect_goes_on(job, 2);
  EXPECT_TRUE(job.wait_for_error("h2#0 was lost with host h2")) << job.err();
  bed().boot(host(2));
  expect_goes_on(job, 3);
  end(job);
}

TEST_F(ElasticHostsTest, AProgramWithoutHvdBeginsAgainOnTheHostsThatAreLeft) {
  make_training_bed(2);
  hosts_are("h1:1\nh2:1\n");
  const char* const program =
      "echo \"$RANK of $WORLD_SIZE on $GROUP_RANK of $GROUP_WORLD_SIZE,"
      " $TORCHELASTIC_RESTART_COUNT.\"; exec sleep 1000";
  Process& job =
      start({"--host-discovery-script", "./discover.sh", "--discovery-interval", "0.1",
             "--heartbeat-timeout", "1", "--ssh-connect-timeout", "1", "--blacklist-cooldown-range",
             "0.5", "1", "--grow-delay", "1", "sh", "-c", program});
  ASSERT_TRUE(job.wait_for_output("0 of 2 on 0 of 2, 0.")) << job.out() << job.err();
  ASSERT_TRUE(job.wait_for_output("1 of 2 on 1 of 2, 0.")) << job.out() << job.err();
  bed().crash(host(2));
  ASSERT_TRUE(job.wait_for_output("0 of 1 on 0 of 1, 1.")) << job.out() << job.err();
  bed().boot(host(2));
  ASSERT_TRUE(job.wait_for_output("1 of 2 on 1 of 2, 1.")) << job.out() << job.err();
  end(job);
}

TEST_F(ElasticHostsTest, AHostThatTheOthersCannotReachIsNamedAndTheJobGoesOn) {
  make_training_bed(2);
  hosts_are("h1:1\n");
  Process& job = start_training();
  ASSERT_TRUE(job.wait_for_output("step     1")) << job.out() << job.err();
  bed().cut(host(1), host(2));
  hosts_are("h1:1\nh2:1\n");
  ASSERT_TRUE(job.wait_for_error("host h2: reach: no address of it can be reached from host h1"))
      << job.err();
  ASSERT_TRUE(job.wait_for_output("step  1000")) << job.err();
  EXPECT_EQ(job.out().find("go on"), std::string::npos) << job.out();
  end(job);
}

}  // namespace
}  // namespace hvd::test
