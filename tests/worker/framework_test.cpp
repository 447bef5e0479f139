// hvd/adapter.h, as a framework uses it, in real jobs.
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class FrameworkTest : public JobTest {
 protected:
  const std::string program_ = binary("hvd_framework_program");
};

TEST_F(FrameworkTest, EveryCollectiveGoesThroughTheSeam) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    const ExitStatus end = run_job({"-np", std::to_string(ranks), program_, "work"});
    EXPECT_EQ(end.code, 0) << ranks << " ranks\n" << end.out << end.err;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(lines_of_rank(end.out, rank), Words{"ok " + std::to_string(rank) + "."}) << end.err;
    }
  }
}

TEST_F(FrameworkTest, AlsoWithoutHvdrun) {
  const ExitStatus end = run({program_, "work"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "ok 0.\n");
}

}  // namespace
}  // namespace hvd::test
