// --autotune, as a person uses it.
#include <regex>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class TuningTest : public JobTest {};

TEST_F(TuningTest, TheLogIsCsvAndResultsAreRightWhileItTunes) {
  const std::string log = directory() / "tune.csv";
  const ExitStatus end = run_job({"-np", "2", "--autotune", "--autotune-log-file", log,
                                  "--autotune-steps-per-sample", "2", "--autotune-warmup-samples",
                                  "1", "--cycle-time-ms", "2", binary("e2e_tunes"), log});
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  const auto lines = lines_of(read_file(log));
  ASSERT_GT(lines.size(), 3U);
  EXPECT_EQ(lines[0],
            "time,sample,fusion_threshold_bytes,cycle_time_ms,cache,hierarchical_allreduce,"
            "hierarchical_allgather,steps,bytes,seconds,score_mb_per_s,decision");
  // The cycle time was set, and there is one host: neither is touched.
  const std::regex row(
      "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z,([0-9]+),[0-9]+,2\\.000,"
      "[01],0,0,[0-9]+,[0-9]+,[0-9]+\\.[0-9]{6},[0-9]+\\.[0-9]{3},\"[^\"]+\"");
  long sample = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::smatch fields;
    ASSERT_TRUE(std::regex_match(lines[i], fields, row)) << lines[i];
    EXPECT_GT(std::stol(fields[1]), sample) << lines[i];
    sample = std::stol(fields[1]);
  }
}

TEST_F(TuningTest, ALogThatCannotBeWrittenEndsTheJobWithItsPath) {
  const ExitStatus end = run_job({"-np", "2", "--autotune", "--autotune-log-file",
                                  "/no/such/place/tune.csv", binary("e2e_tunes"), "x"});
  EXPECT_NE(end.code, 0);
  EXPECT_NE(
      (end.out + end.err).find("open autotuner's log (HVD_AUTOTUNE_LOG) /no/such/place/tune.csv"),
      std::string::npos)
      << end.out << end.err;
}

}  // namespace
}  // namespace hvd::test
