// hvd::ShardReducer in real jobs.
#include <map>
#include <string>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class ShardReducerTest : public JobTest {
 protected:
  const std::string program_ = binary("hvd_shards_program");
};

TEST_F(ShardReducerTest, TheSumHasTheSameBitsInWorldsOfAnySize) {
  for (const int ranks : {1, 2, 3, 4, 5, 6}) expect_all_ok(ranks, {program_, "work"});
}

TEST_F(ShardReducerTest, WorksWithoutHvdrunToo) { expect_ok_alone({program_, "work"}); }

// Not a sum without the shards of some.
TEST_F(ShardReducerTest, ARankThatHasJoinedIsAnError) {
  for (const int ranks : {2, 3}) expect_all_ok(ranks, {program_, "joined"});
}

TEST_F(ShardReducerTest, ALossInTheMiddleOfAStepRedoesTheShardsThatWereLost) {
  const ExitStatus end = run_job({"-np", "4", "--min-np", "2", program_, "loss"});
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  std::map<std::string, int> computed;
  for (const auto& word : split(end.out, '\n')) {
    if (const auto at = word.find("computed "); at != std::string::npos)
      ++computed[word.substr(at)];
  }
  EXPECT_EQ(computed.size(), 6U * 16) << end.out;
  int again = 0;
  for (const auto& [what, times] : computed) {
    EXPECT_LE(times, 2) << what;
    if (times == 1) continue;
    EXPECT_TRUE(what.starts_with("computed 3.")) << what;
    ++again;
  }
  EXPECT_EQ(again, 4) << "those of the lost rank";
}

TEST_F(ShardReducerTest, MistakesAreRefusedAndChangeNothing) {
  expect_all_ok(2, {program_, "mistakes"});
}

}  // namespace
}  // namespace hvd::test
