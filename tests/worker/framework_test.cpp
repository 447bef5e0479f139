// hvd/adapter.h, as a framework uses it, in real jobs.
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class FrameworkTest : public JobTest {
 protected:
  const std::string program_ = binary("hvd_framework_program");
};

TEST_F(FrameworkTest, EveryCollectiveGoesThroughTheSeam) {
  for (int ranks = 1; ranks <= 3; ++ranks) expect_all_ok(ranks, {program_, "work"});
}

TEST_F(FrameworkTest, AlsoWithoutHvdrun) { expect_ok_alone({program_, "work"}); }

}  // namespace
}  // namespace hvd::test
