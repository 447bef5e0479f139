// Elastic training through the C API alone: a C11 program in real jobs.
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class CElasticTest : public JobTest {
 protected:
  const std::string program_ = binary("hvd_c_elastic_program");
};

TEST_F(CElasticTest, AKilledWorkerIsReplacedAndNoStepIsLost) {
  for (const char* const loop : {"train", "turns"}) {
    const ExitStatus end = run_job({"-np", "3", "--min-np", "3", program_, loop});
    ASSERT_EQ(end.code, 0) << loop << end.out << end.err;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(lines_of_rank(end.out, rank),
                Words{"steps 20, total 20, note after step 20, in a later world"})
          << loop << end.err;
    }
    EXPECT_NE(end.err.find("the program of rank 0 gives up: the loss is not a number\n"),
              std::string::npos)
        << loop << end.err;
  }
}

TEST_F(CElasticTest, AnAddedProcessSetThatLosesAMemberFailsOrShrinks) {
  const ExitStatus end =
      run_job({"-np", "3", "--min-np", "2", "--restarts", "0", program_, "sets"});
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{"all sets are right"}) << end.err;
  }
}

TEST_F(CElasticTest, CodesOfCallbacksComeBackAndWrongArgumentsAreRefused) {
  const ExitStatus end = run_job({"-np", "1", program_, "codes"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_EQ(lines_of_rank(end.out, 0), Words{"all codes are right"});
}

}  // namespace
}  // namespace hvd::test
