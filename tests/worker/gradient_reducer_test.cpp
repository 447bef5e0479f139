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

TEST_F(GradientReducerTest, PacksSmallGradientsUnlessATimelineShowsEach) {
  for (const int ranks : {2, 3}) expect_all_ok(ranks, {program_, "packed"});

  const std::string timeline = directory() / "timeline.json";
  const ExitStatus end = run_job({"-np", "2", "--timeline-filename", timeline, program_, "packed"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_NE(read_file(timeline).find("gradient.5"), std::string::npos);
}

// It is lost while the others wait for it in a lane: what they have goes there.
TEST_F(GradientReducerTest, TheLossOfARankIsAnErrorAfterWhichItCanBeReset) {
  for (const auto* const scenario : {"loss", "loss of packed"}) {
    SCOPED_TRACE(scenario);
    const ExitStatus end = run_job({"-np", "3", program_, scenario});
    EXPECT_EQ(end.code, 9) << end.out << end.err;
    for (const int rank : {0, 2}) {
      EXPECT_EQ(lines_of_rank(end.out, rank), Words{"lost rank 1."}) << end.err;
    }
  }
}

}  // namespace
}  // namespace hvd::test
