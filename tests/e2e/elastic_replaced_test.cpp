// All workers are replaced, and some slots are broken: the real hvdrun on names of this machine.
#include <algorithm>
#include <csignal>
#include <set>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

class ElasticReplacedTest : public ElasticJobTest {
 protected:
  Words with_script(const std::string& first_answer, const Words& more) {
    Words words{"--host-discovery-script", discovery_script(first_answer), "--discovery-interval",
                "0.05"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // A world of `size` on this host alone has trained.
  void expect_all_on(Process& job, const std::string& host, std::size_t size) {
    EXPECT_TRUE(step_logs().wait([&] {
      const auto members = step_logs().members();
      return members.size() == size &&
             std::all_of(members.begin(), members.end(), [&](const StepLog* member) {
               return member->worker.starts_with(host + "#");
             });
    })) << step_logs().summary()
        << job.err();
    EXPECT_TRUE(step_logs().wait_for_steps_more(3)) << step_logs().summary();
  }
  void expect_in(const std::string& text, const Words& parts) {
    for (const auto& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" is not in:\n" << text;
    }
  }
  // Before elastic_steps: exits with 7 where `condition` of the shell holds.
  static Words broken_where(const std::string& condition) {
    return {"sh", "-c", cat("if ", condition, "; then exit 7; fi; exec \"$0\" \"$@\"")};
  }
};

// ---- all workers are replaced ----

TEST_F(ElasticReplacedTest, AnotherHostTakesTheStateOverAndHandsItBack) {
  Process& job = start_training(with_script("localhost:2\n", {}));
  expect_all_on(job, "localhost", 2);
  discover("127.0.0.1:2\n");
  expect_all_on(job, "127.0.0.1", 2);
  discover("localhost:2\n");
  expect_all_on(job, "localhost", 2);
  finish(job);
}

TEST_F(ElasticReplacedTest, AnotherHostTakesTheStateOverThoughNoWorkerCanBeSpared) {
  Process& job = start_training(with_script("localhost:2\n", {"--min-np", "2"}), {"--mark"});
  expect_all_on(job, "localhost", 2);
  discover("127.0.0.1:2\n");
  expect_all_on(job, "127.0.0.1", 2);
  finish(job);
}

TEST_F(ElasticReplacedTest, OneWorkerStaysWhileNobodyIsNamed) {
  Process& job = start_training(with_script("localhost:2\n", {}));
  expect_all_on(job, "localhost", 2);
  discover("\n");
  expect_all_on(job, "localhost", 1);
  discover("127.0.0.1:2\n");
  expect_all_on(job, "127.0.0.1", 2);
  finish(job);
}

TEST_F(ElasticReplacedTest, IfNobodyComesTheLastWorkerGoesAndThatIsSaid) {
  Process& job = start_training(with_script("localhost:2\n", {"--leave-grace", "1"}));
  expect_all_on(job, "localhost", 2);
  discover("\n");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 1);
  expect_in(end.err, {"the state is lost: localhost#", "had the only copy of it",
                      "host localhost is no longer named", "after 1 s (--leave-grace)"});
  expect_nobody_left("the job");
}

class ToldToGoTest : public ElasticReplacedTest,
                     public ::testing::WithParamInterface<const char*> {};

TEST_P(ToldToGoTest, EveryWorkerIsReplaced) {
  Process& job = start_training({"-np", "2", "--min-np", GetParam(), "--leave-grace", "2"});
  expect_all_on(job, "localhost", 2);
  step_logs().read();
  std::set<pid_t> before;
  for (const auto* const member : step_logs().members()) before.insert(member->pid);
  for (const pid_t pid : before) EXPECT_EQ(kill_one(pid, SIGTERM), 0);
  EXPECT_TRUE(step_logs().wait([&] {
    const auto members = step_logs().members();
    return members.size() == 2 &&
           std::none_of(members.begin(), members.end(),
                        [&](const StepLog* member) { return before.count(member->pid) != 0; });
  })) << step_logs().summary()
      << job.err();
  finish(job);
}
INSTANTIATE_TEST_SUITE_P(Elastic, ToldToGoTest, ::testing::Values("1", "2"),
                         [](const auto& least) { return cat("AtLeast", least.param); });

// ---- what is broken ----

TEST_F(ElasticReplacedTest, ABrokenSlotIsSetAsideAndTheRestGoesOn) {
  Words flags{"-np", "4", "--min-np", "2"};
  const auto program = broken_where("[ \"$HVD_LOCAL_RANK\" = 3 ]");
  flags.insert(flags.end(), program.begin(), program.end());
  Process& job = start_training(flags);
  // How it is tried again depends on whether a neighbour has called hvd::init() by then.
  EXPECT_TRUE(job.wait_for_error(
      "localhost#3 exited with code 7; its slot has failed 4 times: it is set aside "))
      << job.err();
  expect_all_on(job, "localhost", 3);
  // Its neighbours are started again as ever.
  kill_rank(1);
  EXPECT_NE(step_logs().wait_for_world(3, step_logs().newest_world()), 0) << job.err();
  finish(job);
}

TEST_F(ElasticReplacedTest, ABrokenHostIsSetAsideAndTheRestGoesOn) {
  Words flags{"-H", "localhost:2,127.0.0.1:2", "-np", "4", "--min-np", "2"};
  const auto program = broken_where("[ \"$HVD_HOSTNAME\" = 127.0.0.1 ]");
  flags.insert(flags.end(), program.begin(), program.end());
  Process& job = start_training(flags);
  EXPECT_TRUE(job.wait_for_error("as all 2 slots of host 127.0.0.1 are now")) << job.err();
  expect_all_on(job, "localhost", 2);
  finish(job);
}

TEST_F(ElasticReplacedTest, ABrokenHostThatComesFirstDoesNotEndTheJob) {
  Words flags = with_script("127.0.0.1:1\nlocalhost:1\n", {"-np", "1", "--max-np", "1"});
  const auto program = broken_where("[ \"$HVD_HOSTNAME\" = 127.0.0.1 ]");
  flags.insert(flags.end(), program.begin(), program.end());
  Process& job = start_training(flags);
  expect_all_on(job, "localhost", 1);
  finish(job);
}

TEST_F(ElasticReplacedTest, AProgramThatIsBrokenEverywhereEndsTheJob) {
  const ExitStatus end =
      run_job({"-H", "localhost:2,127.0.0.1:2", "--min-np", "1", "sh", "-c", "exit 7"});
  EXPECT_EQ(end.code, 7);
  expect_in(end.err, {"exited with code 7", "no worker got as far as joining the others"});
}

TEST_F(ElasticReplacedTest, TooFewBesideABrokenSlotIsAnErrorThatNamesIt) {
  Words flags{"-np", "4", "--min-np", "4", "--elastic-timeout", "3"};
  const auto program = broken_where("[ \"$HVD_LOCAL_RANK\" = 3 ]");
  flags.insert(flags.end(), program.begin(), program.end());
  Process& job = start_training(flags);
  const ExitStatus end = job.wait();
  EXPECT_NE(end.code, 0);
  expect_in(end.err, {"there was not enough room for 3 s (--elastic-timeout)",
                      "at least 4 workers needed, 3 slots are ready on 1 of 1 host",
                      "localhost#3 is set aside, since it exited with code 7"});
}

}  // namespace
}  // namespace hvd::test
