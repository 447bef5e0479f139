// hvd::GradientReducer in real jobs.
#include <unistd.h>

#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class GradientReducerTest : public JobTest {
 protected:
  const std::string program_ = binary("hvd_gradients_program");
};

TEST_F(GradientReducerTest, ReducesWhatIsReadyAndFillsInWhatIsNot) {
  for (int ranks = 1; ranks <= 4; ++ranks) expect_all_ok(ranks, {program_, "work"});
}

TEST_F(GradientReducerTest, WaitsForTheLastGradientIfRanksOutnumberCores) {
  const auto cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (cores > 1) expect_all_ok(2, {program_, "early"});
  if (cores > 64) GTEST_SKIP() << "it would take " << cores + 1 << " processes";
  expect_all_ok(cores + 1, {program_, "late"});
}

TEST_F(GradientReducerTest, WorksWithoutHvdrunToo) { expect_ok_alone({program_, "work"}); }

TEST_F(GradientReducerTest, TheLossOfARankIsAnErrorAfterWhichItCanBeReset) {
  const ExitStatus end = run_job({"-np", "3", program_, "loss"});
  EXPECT_EQ(end.code, 9) << end.out << end.err;
  for (const int rank : {0, 2}) {
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{"lost rank 1."}) << end.err;
  }
}

}  // namespace
}  // namespace hvd::test
