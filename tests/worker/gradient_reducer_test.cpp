// hvd::GradientReducer in real jobs.
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
