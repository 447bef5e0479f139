// hvdrun dies on its host, and another one there goes on with the job on all hosts.
#include <csignal>
#include <optional>
#include <string>

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

}  // namespace
}  // namespace hvd::test
