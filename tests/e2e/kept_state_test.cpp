// --keep-state-in-agents: what was committed outlives all workers, with real processes.
#include <csignal>
#include <set>
#include <string>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

class KeptStateTest : public ElasticJobTest {
 protected:
  Process& start(const Words& flags, const Words& program_flags = {}) {
    Words all{"--keep-state-in-agents", "--restarts", "20"};
    all.insert(all.end(), flags.begin(), flags.end());
    return start_training(all, program_flags);
  }
  // Until a world of `size` has come after this one and worked a little.
  std::int64_t expect_world(Process& job, int size, std::int64_t after = 0) {
    const auto world = step_logs().wait_for_world(size, after);
    EXPECT_NE(world, 0) << "no world of " << size << "\n" << step_logs().summary() << job.err();
    EXPECT_TRUE(step_logs().wait_for_steps_more(5)) << step_logs().summary();
    return world;
  }
  void kill_all(int size) {
    for (int rank = 0; rank < size; ++rank) kill_rank(rank, SIGSTOP);  // all at once
    for (int rank = 0; rank < size; ++rank) kill_rank(rank);
  }
};

// The step logs tell whether a step was lost or done twice, and whether all weights are right.
TEST_F(KeptStateTest, AllWorkersMayBeKilledAtOnceAgainAndAgain) {
  Process& job = start({"-np", "3", "--min-np", "3"}, {"--verify"});
  std::int64_t world = 0;
  for (int time = 0; time < 4; ++time) {
    world = expect_world(job, 3, world);
    kill_all(3);
  }
  expect_world(job, 3, world);
  const auto end = finish(job);
  EXPECT_NE(end.err.find("no worker of the world is left: others go on from commit "),
            std::string::npos)
      << end.err;
}

TEST_F(KeptStateTest, AStateThatChangesItsSizeIsKept) {
  Process& job = start({"-np", "2", "--min-np", "2"}, {"--verify", "--grow", "--step", "0"});
  ASSERT_TRUE(step_logs().wait_for_step(120)) << step_logs().summary();
  kill_all(2);
  const auto world = expect_world(job, 2);
  ASSERT_TRUE(step_logs().wait_for_steps_more(110)) << step_logs().summary();
  kill_all(2);
  expect_world(job, 2, world);
  finish(job);
}

// All fail in the same way, which ends a job that does not keep its state.
TEST_F(KeptStateTest, AFaultOfTheProgramThatComesOnceIsNoEnd) {
  Process& job = start({"-np", "4", "--min-np", "4"});
  const auto world = expect_world(job, 4);
  for (int slot = 0; slot < 4; ++slot) order(cat("localhost#", slot), "step", "exit 7");
  expect_world(job, 4, world);
  finish(job);
}

TEST_F(KeptStateTest, WorkersThatDieAfterTheTrainingLeaveItsEndToOthers) {
  Process& job = start({"-np", "2", "--min-np", "2", "--verbose"});
  expect_world(job, 2);
  for (const char* const worker : {"localhost#0", "localhost#1"}) order(worker, "over", "exit 5");
  say_enough();
  EXPECT_EQ(job.wait().code, 0) << job.err();
  step_logs().read();
  int done = 0;
  std::set<std::string> ends;
  for (const auto& log : step_logs().step_logs()) {
    if (log.done_step == 0) continue;
    ++done;
    ends.insert(cat(log.done_step, " ", log.weights));
  }
  EXPECT_EQ(ends.size(), 1U);
  EXPECT_EQ(done, 4) << "two that died, and two that came after them\n" << step_logs().summary();
  expect_nobody_left("the job");
}

TEST_F(KeptStateTest, AStateThatIsOnlyMarkedIsNotKeptAndTheJobSaysSo) {
  Process& job = start({"-np", "2", "--min-np", "2"}, {"--mark"});
  expect_world(job, 2);
  EXPECT_TRUE(
      job.wait_for_error("the agent of this host does not keep the state "
                         "(--keep-state-in-agents): its commits are only marked"))
      << job.err();
  finish(job);
}

TEST_F(KeptStateTest, NothingIsKeptWithoutTheFlag) {
  Process& job = start_training({"-np", "2", "--min-np", "2"});
  expect_world(job, 2);
  kill_all(2);
  const auto end = job.wait();
  EXPECT_EQ(end.code, 128 + SIGKILL);
  EXPECT_NE(end.err.find("no worker of the world is left"), std::string::npos) << end.err;
  expect_nobody_left("the job");
}

}  // namespace
}  // namespace hvd::test
