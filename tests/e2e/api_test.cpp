// The public API in real jobs: every call, and every disagreement between ranks.
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class ApiTest : public JobTest {
 protected:
  // No worker has logged an error.
  void expect_all_ok(int ranks, const std::string& program, const std::string& scenario,
                     const Words& flags = {}) {
    const ExitStatus end = JobTest::expect_all_ok(ranks, {binary(program), scenario}, flags);
    EXPECT_EQ(lines_of_rank(end.err, 0, "stderr"), Words{});
  }
};

TEST_F(ApiTest, EveryCollectiveGivesWhatItsDocumentationSays) {
  for (const int ranks : {1, 2, 3, 4}) expect_all_ok(ranks, "e2e_api_calls", "collectives");
}

TEST_F(ApiTest, DeterministicJobsAndJobsWithoutACacheGiveTheSame) {
  expect_all_ok(3, "e2e_api_calls", "collectives", {"--deterministic"});
  expect_all_ok(3, "e2e_api_calls", "collectives", {"--cache-capacity", "0"});
}

TEST_F(ApiTest, RanksThatDisagreeAllGetTheSameErrorAndGoOn) {
  for (const int ranks : {2, 3, 4}) expect_all_ok(ranks, "e2e_api_errors", "disagreements");
}

TEST_F(ApiTest, ProcessSetsFromTheStartAreNumberedAndHaveCollectivesOfTheirOwn) {
  for (const int ranks : {3, 4}) expect_all_ok(ranks, "e2e_api_sets", "from-the-start");
}

TEST_F(ApiTest, UnnamedCallsAreMatchedWithinTheirProcessSet) {
  for (const int ranks : {3, 4}) expect_all_ok(ranks, "e2e_api_sets", "unnamed");
}

TEST_F(ApiTest, ProcessSetsComeAndGo) {
  for (const int ranks : {3, 4}) expect_all_ok(ranks, "e2e_api_sets", "dynamic");
}

TEST_F(ApiTest, ProcessSetsFromTheStartMustBeTheSameOnAllRanks) {
  for (const int ranks : {2, 3}) expect_all_ok(ranks, "e2e_api_sets", "disagree");
}

TEST_F(ApiTest, DynamicProcessSetsAreAllowedByFlag) {
  expect_all_ok(2, "e2e_api_sets", "by-environment", {"--dynamic-process-sets"});
}

}  // namespace
}  // namespace hvd::test
