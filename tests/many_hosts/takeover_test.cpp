// hvdrun dies on its host, and another one there goes on with the job on all hosts.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"
#include "tests/many_hosts/steps_job.h"

namespace hvd::test {
namespace {

class TakeoverOnHostsTest : public ManyHostsTest {
 protected:
  void start_training(int hosts) {
    make_bed({.hosts = hosts});
    StepsJobOptions options;
    options.hosts = bed().host_list(2);
    options.flags = {"--state", "/root/state", "-np", std::to_string(2 * hosts), "--min-np", "2"};
    options.program_flags = {"--verify"};
    job_.emplace(bed(), options);
    ASSERT_GT(logs().wait_for_world(2 * hosts), 0) << job_->process().err();
  }
  // Of the newest world.
  std::vector<pid_t> members() {
    logs().read();
    std::vector<pid_t> pids;
    for (const StepLog* const member : logs().members()) pids.push_back(member->pid);
    return pids;
  }
  void finish() {
    job_->say_enough();
    const ExitStatus end = job_->process().wait();
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(logs().errors(job_->rules()), "") << end.err;
    EXPECT_TRUE(nobody_left()) << names_of_strangers();
  }
  StepsJob& job() { return *job_; }
  StepLogs& logs() { return job_->step_logs(); }

 private:
  std::optional<StepsJob> job_;
};

TEST_F(TakeoverOnHostsTest, AgentsOverSshAreFoundAgainWithTheirWorkers) {
  start_training(4);
  const auto world = logs().newest_world();
  const auto workers = members();
  job().crash_driver();
  ASSERT_TRUE(logs().wait_for_steps_more(20)) << "a world that is whole needs no driver";
  job().start_driver();
  ASSERT_TRUE(job().process().wait_for_error("goes on with job")) << job().process().err();
  ASSERT_TRUE(logs().wait_for_steps_more(20)) << job().process().err();
  EXPECT_EQ(logs().newest_world(), world) << job().process().err();
  EXPECT_EQ(members(), workers);
  EXPECT_EQ(logs().steps_done_again(), 0);
  finish();
}

TEST_F(TakeoverOnHostsTest, AHostThatCrashesWhileThereIsNoDriverIsDoneWithout) {
  start_training(3);
  const auto world = logs().newest_world();
  job().crash_driver();
  bed().crash(host(2));
  job().start_driver();
  EXPECT_GT(logs().wait_for_world(4, world), world) << job().process().err() << logs().summary();
  ASSERT_TRUE(logs().wait_for_steps_more(5)) << job().process().err();
  finish();
}

TEST_F(TakeoverOnHostsTest, AWorkerThatDiesWhileThereIsNoDriverIsReplaced) {
  start_training(2);
  const auto world = logs().newest_world();
  job().crash_driver();
  const auto workers = pids(host(2), "elastic_steps");
  ASSERT_EQ(workers.size(), 2U);
  ASSERT_EQ(kill_one(workers.front(), SIGKILL), 0);
  job().start_driver();
  EXPECT_GT(logs().wait_for_world(4, world), world) << job().process().err() << logs().summary();
  finish();
}

// The state directory is on storage that two machines share, agents join on the others.
class TakeoverElsewhereTest : public ManyHostsTest {
 protected:
  void SetUp() override {
    ManyHostsTest::SetUp();
    if (IsSkipped()) return;
    make_bed({.hosts = 3});
    std::vector<std::filesystem::path> logs;
    for (Host* const one : {&bed().head(), &host(1), &host(2), &host(3)}) {
      const auto root = one->files() / "root";
      for (const char* const program : {"hvdrun", "hvd-agent", "elastic_steps"}) {
        one->place(binary(program));
      }
      std::ofstream(root / "token") << std::string(64, 'a') << "\n";
      std::filesystem::permissions(root / "token", std::filesystem::perms::owner_read);
      std::filesystem::create_directories(root / "orders");
      logs.push_back(root / "step_logs");
    }
    logs_.emplace(logs);
  }
  std::unique_ptr<Process> start_driver(Host& on, const Words& flags) {
    Words words{"./hvdrun", "--state",   "/root/state",         "--min-np", "1", "--max-np",
                "3",        "--verbose", "--heartbeat-timeout", "3"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"./elastic_steps", "--log", "step_logs", "--orders", "orders",
                               "--until", "enough"});
    return on.start(words);
  }
  std::unique_ptr<Process> start_driver(Host& on) {
    return start_driver(on, {"-H", "localhost:1", "--join-bind", on.ipv4() + ":4000",
                             "--token-file", "/root/token"});
  }
  // The state directory goes over to this host.
  void move_to(Host& to) {
    bed().crash(bed().head());
    std::filesystem::copy(bed().head().files() / "root" / "state", to.files() / "root" / "state",
                          std::filesystem::copy_options::recursive);
  }
  void say_enough() {
    for (Host* const one : {&bed().head(), &host(1), &host(2), &host(3)}) {
      std::ofstream(one->files() / "root" / "enough") << "";
    }
  }
  std::unique_ptr<Process> start_agent(Host& on) {
    return on.start({"./hvdrun", "agent", "--join",
                     cat("tls://", bed().head().ipv4(), ":4000,tls://", host(3).ipv4(), ":4000"),
                     "--token-file", "/root/token", "--host", on.name(), "--slots", "1"});
  }
  StepLogs& logs() { return *logs_; }

 private:
  std::optional<StepLogs> logs_;
};

TEST_F(TakeoverElsewhereTest, TheMachineOfTheDriverDiesAndAnotherOneGoesOnWithTheJob) {
  const auto first = start_driver(bed().head());
  const auto a = start_agent(host(1));
  const auto b = start_agent(host(2));
  const auto world = logs().wait_for_world(3);
  ASSERT_GT(world, 0) << first->err() << a->err() << b->err();
  const auto of_a = pids(host(1), "elastic_steps");
  const auto of_b = pids(host(2), "elastic_steps");
  move_to(host(3));
  const auto second = start_driver(host(3));
  ASSERT_TRUE(second->wait_for_error("goes on with job")) << second->err();
  ASSERT_TRUE(second->wait_for_error("it was the machine of that hvdrun, and this one is another"))
      << second->err();
  ASSERT_TRUE(second->wait_for_error("host h1 has joined again")) << second->err() << a->err();
  ASSERT_TRUE(second->wait_for_error("host h2 has joined again")) << second->err() << b->err();
  const auto without_head = logs().wait_for_world(2, world);
  ASSERT_GT(without_head, world) << second->err() << a->err();
  // The name means this machine from now on.
  const auto with_new = logs().wait_for_world(3, world);
  EXPECT_GT(with_new, world) << second->err();
  EXPECT_EQ(pids(host(1), "elastic_steps"), of_a) << second->err();
  EXPECT_EQ(pids(host(2), "elastic_steps"), of_b) << second->err();
  EXPECT_EQ(pids(host(3), "elastic_steps").size(), 1U) << second->err();

  say_enough();
  EXPECT_EQ(second->wait().code, 0) << second->err();
  EXPECT_EQ(a->wait().code, 0) << a->err();
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

TEST_F(TakeoverElsewhereTest, HostsThatSshReachesGoOnWithTheirWorkers) {
  host(3).place(bed().key(), "/root/key");
  const Words flags{"-H", "h1:1,h2:1", "--ssh-host-key", "off"};
  const auto first = start_driver(bed().head(), flags);
  const auto world = logs().wait_for_world(2);
  ASSERT_GT(world, 0) << first->err();
  const auto of_a = pids(host(1), "elastic_steps");
  move_to(host(3));
  Words with_key = flags;
  with_key.insert(with_key.end(), {"--ssh-identity-file", "/root/key"});
  const auto second = start_driver(host(3), with_key);
  for (const char* const one : {"h1", "h2"}) {
    ASSERT_TRUE(second->wait_for_error(cat("the agent of host ", one, " is found again")))
        << second->err();
  }
  ASSERT_TRUE(logs().wait_for_steps_more(20)) << second->err();
  EXPECT_EQ(pids(host(1), "elastic_steps"), of_a) << second->err();
  // A world forms at the new address. (One that was new when its driver died is formed once more.)
  ASSERT_EQ(kill_one(of_a.at(0), SIGKILL), 0);
  EXPECT_GT(logs().wait_for_world(2, logs().newest_world()), world) << second->err();
  say_enough();
  EXPECT_EQ(second->wait().code, 0) << second->err();
  // Nothing tells the servers of the first driver's connections that its machine has died.
  for (int number = 1; number <= 2; ++number) {
    for (const auto& seen : strangers(host(number))) {
      if (seen.command_line.starts_with("sshd:")) kill_one(seen.pid, SIGKILL);
    }
  }
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

// A driver that does not run for a while is no driver whose machine has died.
TEST_F(TakeoverElsewhereTest, AgentsThatHearNothingStayWithTheDriverThatComesBack) {
  const auto driver = start_driver(bed().head());
  const auto a = start_agent(host(1));
  const auto b = start_agent(host(2));
  const auto world = logs().wait_for_world(3);
  ASSERT_GT(world, 0) << driver->err() << a->err() << b->err();
  driver->signal(SIGSTOP);
  ASSERT_TRUE(a->wait_for_error("looking for another one of the job")) << a->err();
  driver->signal(SIGCONT);
  ASSERT_TRUE(logs().wait_for_steps_more(20)) << driver->err() << a->err();
  EXPECT_EQ(logs().newest_world(), world) << driver->err() << a->err();
  say_enough();
  EXPECT_EQ(driver->wait().code, 0) << driver->err();
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

}  // namespace
}  // namespace hvd::test
