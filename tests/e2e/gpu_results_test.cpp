// Results of collectives on GPUs, in real jobs, on GPUs in the memory of the host.
#include <stdlib.h>

#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class GpuResultsTest : public JobTest {
 protected:
  GpuResultsTest() { ::setenv("HVD_NCCL_MODULE", HVD_HOST_GPU_MODULE, 1); }
  ~GpuResultsTest() override { ::unsetenv("HVD_NCCL_MODULE"); }
  const std::string program_ = binary("e2e_gpu_results");
};

TEST_F(GpuResultsTest, ResultsLieWhereTheInputsLieAndFreeThemselves) {
  for (int ranks = 1; ranks <= 3; ++ranks) expect_all_ok(ranks, {program_, "results"});
}

TEST_F(GpuResultsTest, ResultsOfTheCApiGoWithTheirHandle) {
  expect_all_ok(2, {program_, "c results"});
}

TEST_F(GpuResultsTest, ADeviceWithoutRoomOrThatIsNotThereIsAnErrorOfTheTensor) {
  expect_all_ok(2, {program_, "too much"});
}

}  // namespace
}  // namespace hvd::test
