// The public API in real jobs: every call, and every disagreement between ranks.
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class ApiTest : public JobTest {
 protected:
  void expect_all_ok(int ranks, const std::string& program, const std::string& scenario,
                     const Words& flags = {}) {
    Words words{"-np", std::to_string(ranks)};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back(binary(program));
    words.push_back(scenario);
    const ExitStatus end = run_job(words);
    EXPECT_EQ(end.code, 0) << ranks << " ranks\n" << end.out << end.err;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(lines_of_rank(end.out, rank), Words{"ok " + std::to_string(rank) + "."}) << end.err;
    }
    EXPECT_EQ(lines_of_rank(end.err, 0, "stderr"), Words{});
  }
};

TEST_F(ApiTest, EveryCollectiveGivesWhatItsDocumentationSays) {
  for (const int ranks : {1, 2, 3, 4}) expect_all_ok(ranks, "e2e_api_calls", "collectives");
}

}  // namespace
}  // namespace hvd::test
