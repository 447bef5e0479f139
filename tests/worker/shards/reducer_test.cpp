// hvd::ShardReducer in real jobs.
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class ShardReducerTest : public JobTest {
 protected:
  const std::string program_ = binary("hvd_shards_program");
};

TEST_F(ShardReducerTest, TheSumHasTheSameBitsInWorldsOfAnySize) {
  for (const int ranks : {1, 2, 3, 4, 5}) expect_all_ok(ranks, {program_, "work"});
}

TEST_F(ShardReducerTest, WorksWithoutHvdrunToo) { expect_ok_alone({program_, "work"}); }

TEST_F(ShardReducerTest, MistakesAreRefusedAndChangeNothing) {
  expect_all_ok(2, {program_, "mistakes"});
}

}  // namespace
}  // namespace hvd::test
