// Elastic jobs whose state is on GPUs, with real processes, on GPUs in the memory of the host:
// every weight is looked at whenever a world begins.
#include <csignal>
#include <stdlib.h>

#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

// Where copies are kept: on the device, in pinned memory.
class ElasticGpuTest : public ElasticJobTest, public testing::WithParamInterface<const char*> {
 protected:
  ElasticGpuTest() {
    ::setenv("HVD_NCCL_MODULE", HVD_HOST_GPU_MODULE, 1);
    ::setenv("HVD_STATE_ON_DEVICE_LIMIT", GetParam(), 1);
  }
  ~ElasticGpuTest() override {
    ::unsetenv("HVD_NCCL_MODULE");
    ::unsetenv("HVD_STATE_ON_DEVICE_LIMIT");
  }
  std::int64_t expect_world(Process& job, int size, std::int64_t after = 0) {
    const auto world = step_logs().wait_for_world(size, after);
    EXPECT_NE(world, 0) << "no world of " << size << "\n" << step_logs().summary() << job.err();
    EXPECT_TRUE(step_logs().wait_for_steps_more(5)) << step_logs().summary();
    return world;
  }
};

INSTANTIATE_TEST_SUITE_P(Kept, ElasticGpuTest, testing::Values("1000000000", "0"),
                         [](const auto& limit) {
                           return std::string(limit.param) == "0" ? "pinned" : "on_the_device";
                         });

TEST_P(ElasticGpuTest, AKilledWorkerIsReplacedAndReceivesTheTensors) {
  Process& job = start_training({"-np", "3", "--min-np", "2"}, {"--gpu", "--compare", "10"});
  auto world = expect_world(job, 3);
  kill_rank(1);
  world = expect_world(job, 3, world);
  kill_rank(
      0);  // of a communicator it is the root, and of the transfer after it perhaps the sender
  expect_world(job, 3, world);
  finish(job);
}

TEST_P(ElasticGpuTest, WithoutCopiesTheNewestTensorsOfAnyRankAreEverybodys) {
  Process& job = start_training({"-np", "3", "--min-np", "2"}, {"--gpu", "--mark"});
  const auto world = expect_world(job, 3);
  kill_rank(2);
  expect_world(job, 3, world);
  finish(job);
}

TEST_P(ElasticGpuTest, AReceiverThatDiesBeforeItHasTakenTheTensorsOverIsOneMoreGeneration) {
  Process& job = start_training({"-np", "3", "--min-np", "2"}, {"--gpu", "--state", "8000000"});
  const auto world = expect_world(job, 3);
  order("any", "load", "kill");  // the next worker that receives the state
  kill_rank(2);
  expect_world(job, 3, world);
  EXPECT_TRUE(was_obeyed("any", "load"));
  finish(job);
}

}  // namespace
}  // namespace hvd::test
