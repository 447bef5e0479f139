// The C API: a C11 program, alone and in real jobs.
#include <csignal>
#include <set>

#include "base/text.h"
#include "tests/e2e/job_test.h"
#include "tests/runtime/trace/trace_check.h"

namespace hvd::test {
namespace {

class CApiTest : public JobTest {
 protected:
  const std::string program_ = binary("hvd_c_api_program");
};

TEST_F(CApiTest, EveryCallDoesWhatItsHeaderSaysAndRefusesInvalidArguments) {
  for (int ranks = 1; ranks <= 4; ++ranks) expect_all_ok(ranks, {program_, "work"});
}

TEST_F(CApiTest, WorksWithoutHvdrunToo) { expect_ok_alone({program_, "work"}); }

TEST_F(CApiTest, RecordsATimelineOfAllRanks) {
  const auto path = (directory() / "timeline.json").string();
  const ExitStatus end = run_job({"-np", "2", program_, "timeline", path});
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  const auto timeline = expect_right_timeline(path);
  EXPECT_EQ(timeline.ranks_with("ALLREDUCE"), (std::set<int>{0, 1}));
}

TEST_F(CApiTest, TheLossOfARankSaysWhoAndWhere) {
  const ExitStatus end = run_job({"-np", "3", program_, "loss"});
  EXPECT_EQ(end.code, 9) << end.out << end.err;
  for (const int rank : {0, 2}) {
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{"lost rank 1."}) << end.err;
  }
}

TEST_F(CApiTest, AFrameworkFollowsTheWorldsOfAnElasticJob) {
  Process& job = start({"-np", "3", "--min-np", "2", program_, "follow", "3"});
  const std::string last = "in 1: rank 2 of 3, pid ";
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.wait_for_output(cat("in 1: rank ", rank, " of 3"))) << job.out() << job.err();
  }
  ASSERT_TRUE(job.wait_for_output(last));
  // Another one takes its slot, and joins at a commit.
  ::kill(std::stoi(job.out().substr(job.out().find(last) + last.size())), SIGKILL);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_NE(end.out.find("in 2: rank 0 of 2, "), std::string::npos) << end.out;
  for (const int rank : {0, 1, 2}) {
    EXPECT_NE(end.out.find(cat("in 3: rank ", rank, " of 3, ")), std::string::npos) << end.out;
  }
}

TEST_F(CApiTest, WithoutHvdrunThereIsNothingToFollow) {
  EXPECT_EQ(run({program_, "follow"}).code, 0);
}

}  // namespace
}  // namespace hvd::test
