// The last activities of the workers of a failed job.
#include <gtest/gtest.h>

#include "base/text.h"
#include "driver/output/activity_report.h"

namespace hvd::driver {
namespace {

ActivityRow row(int rank, const std::string& in_flight, const std::string& missing = {}) {
  return {rank, "a", rank, 100 + rank, in_flight, "nothing", missing};
}

TEST(LastActivities, AreATableByRankAndNameMissingRanks) {
  LastActivities last;
  EXPECT_EQ(last.text(), "");
  last.add(8, row(1, "allreduce \"x\" waits"));
  last.add(9,
           row(0, "allreduce \"x\" waits", "rank 2 on a#2 has not asked for \"x\"\n  and 1 more"));
  EXPECT_EQ(last.text(),
            "what 2 workers did last:\n"
            "  rank  worker  pid  in flight            ended last\n"
            "  0     a#0     100  allreduce \"x\" waits  nothing\n"
            "  1     a#1     101  allreduce \"x\" waits  nothing\n"
            "  rank 2 on a#2 has not asked for \"x\"\n"
            "  and 1 more\n");
}

// The request of rank 3 was lost with rank 2, which should have passed it on.
TEST(LastActivities, ARankThatWaitsIsNotSaidNotToHaveAsked) {
  LastActivities last;
  last.add(9, row(0, "allreduce \"x\" waits",
                  "rank 1 on a#1 has not asked for \"y\"; it asked for \"x\" last\n"
                  "rank 3 on a#3 has not asked for \"x\"; it has asked for nothing so far"));
  last.add(8, row(1, "allreduce \"x\" waits"));
  last.add(7, row(3, "allreduce \"x\" waits"));
  EXPECT_NE(last.text().find("rank 1 on a#1 has not asked for \"y\""), std::string::npos);
  EXPECT_EQ(last.text().find("rank 3 on a#3"), std::string::npos) << last.text();
}

TEST(LastActivities, TheFirstReportOfAWorkerCountsUntilThereIsANewWorld) {
  LastActivities last;
  last.add(8, row(0, "first"));
  last.add(8, row(0, "second"));
  EXPECT_NE(last.text().find("first"), std::string::npos);
  EXPECT_EQ(last.text().find("second"), std::string::npos);
  last.clear();
  EXPECT_EQ(last.text(), "");
}

TEST(LastActivities, OfWorkersThatDidNothingSayNothing) {
  LastActivities last;
  for (int rank = 0; rank < 3; ++rank)
    last.add(static_cast<std::uint64_t>(rank), row(rank, "nothing"));
  EXPECT_EQ(last.text(), "");
}

TEST(LastActivities, AreBoundedWhateverWorkersReport) {
  LastActivities last;
  const std::string much(100'000, 'x');
  for (int rank = 0; rank < 1000; ++rank) {
    last.add(static_cast<std::uint64_t>(rank), row(rank, much, cat("\x1b[2J", much, "\n", much)));
  }
  const std::string text = last.text();
  EXPECT_NE(text.find("  31 "), std::string::npos);
  EXPECT_EQ(text.find("  32 "), std::string::npos);
  EXPECT_NE(text.find("  and 968 more\n"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 20'000U);
}

}  // namespace
}  // namespace hvd::driver
