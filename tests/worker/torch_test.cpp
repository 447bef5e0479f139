// hvd/torch.h in real jobs, and the example that learns with it.
#include <csignal>
#include <regex>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class TorchTest : public JobTest {
 protected:
  // In a world of one, too, where there is nobody to disagree with.
  void expect_ok(const std::string& scenario) {
    const Words command{binary("hvd_torch_program"), scenario};
    expect_all_ok(2, command);
    expect_ok_alone(command);
  }

  // The share of the images that are recognized after the second epoch, in percent.
  static double share_of(const ExitStatus& end) {
    std::smatch found;
    const bool is_there = std::regex_search(end.out, found, std::regex("epoch 2: ([0-9.]+) %"));
    EXPECT_TRUE(is_there) << end.out << end.err;
    return is_there ? std::stod(found[1]) : 0;
  }
};

TEST_F(TorchTest, TensorsAreSeenWithoutACopy) { expect_ok("views"); }
TEST_F(TorchTest, ParametersBecomeThoseOfTheRoot) { expect_ok("parameters"); }
TEST_F(TorchTest, TrainingIsThatOfOneProcessWithTheBatchesOfAll) { expect_ok("equal"); }
TEST_F(TorchTest, NoGradientStaysNone) { expect_ok("unused"); }
TEST_F(TorchTest, PassesAddUp) { expect_ok("passes"); }
TEST_F(TorchTest, GradientsOfEmbeddingsTravelAsRows) { expect_ok("sparse"); }
TEST_F(TorchTest, OptimizersOfOneGraphWaitInTurns) { expect_ok("several"); }
TEST_F(TorchTest, ErrorsLeaveAnOptimizerThatGoesOn) { expect_ok("errors"); }
TEST_F(TorchTest, ALoaderGetsTheSamplesThatAreLeft) { expect_ok("loader"); }
TEST_F(TorchTest, ModulesAndOptimizersComeBackFromAState) { expect_ok("states"); }
TEST_F(TorchTest, AStateRefusesWhatItCannotKeep) { expect_ok("odd_states"); }

TEST_F(TorchTest, GradientsAreReducedInThreeProcesses) {
  for (const char* const scenario : {"equal", "unused", "sparse", "several"}) {
    expect_all_ok(3, {binary("hvd_torch_program"), scenario});
  }
}

TEST_F(TorchTest, TheExampleLearnsInAStaticJob) {
  const auto end = run_job({"-np", "2", binary("libtorch_fashion"), "--images", "2000", "--epochs",
                            "2", "--static", "1"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_GT(share_of(end), 60) << end.out;
}

TEST_F(TorchTest, TheExampleLearnsThoughAWorkerIsKilled) {
  auto& job = start({"-np", "2", "--min-np", "2", "--restarts", "3", binary("libtorch_fashion"),
                     "--images", "2000", "--epochs", "2"});
  ASSERT_TRUE(job.wait_for_output("epoch 1: ")) << job.err();
  std::vector<pid_t> workers;
  for (const auto pid : processes()) {
    if (read_file(cat("/proc/", pid, "/comm")) == "libtorch_fashio\n") workers.push_back(pid);
  }
  ASSERT_EQ(workers.size(), 2U);
  kill_one(workers.back(), SIGKILL);
  const auto end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("generation 2: 2 workers"), std::string::npos) << end.err;
  EXPECT_GT(share_of(end), 60) << end.out;
}

}  // namespace
}  // namespace hvd::test
