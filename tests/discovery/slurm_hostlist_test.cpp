#include <gtest/gtest.h>

#include "base/text.h"
#include "discovery/slurm_job.h"

namespace hvd::discovery {
namespace {

std::string expanded(std::string_view text) {
  const auto names = expand_hostlist(text);
  return names.ok() ? join(*names, " ") : "error: " + names.status().message();
}

TEST(SlurmHostlist, IsExpandedInItsOrder) {
  EXPECT_EQ(expanded("a"), "a");
  EXPECT_EQ(expanded("sn[1-3,7],gpu[08-11]-ib"),
            "sn1 sn2 sn3 sn7 gpu08-ib gpu09-ib gpu10-ib gpu11-ib");
  EXPECT_EQ(expanded("b,a"), "b a");
  EXPECT_EQ(expanded("r[1-2]n[01-02]"), "r1n01 r1n02 r2n01 r2n02");
  EXPECT_EQ(expanded("n[9-11]"), "n9 n10 n11");
  EXPECT_EQ(expanded("n[099-101]"), "n099 n100 n101");
}

TEST(SlurmHostlist, AMalformedOneIsRefused) {
  for (const auto* const text :
       {"", ",", "a,,b", "a[1", "a1]", "a[1-", "a[2-1]", "a[x]", "a[1-2x]", "a[[1]]", "a[]",
        "a[1-99999999999]", "a[0-999999]", "a[1-1000][1-1000]", "a[-1]"}) {
    EXPECT_TRUE(expanded(text).starts_with("error: list of nodes"))
        << text << ": " << expanded(text);
  }
}

TEST(SlurmCounts, AreOneForEachNode) {
  const auto counts = expand_counts("2(x3),1");
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(*counts, (std::vector<int>{2, 2, 2, 1}));
  for (const auto* const text : {"x", "2(x)", "2(x3", "0", "-1", "2,,1", "1(x999999999)"}) {
    EXPECT_FALSE(expand_counts(text).ok()) << text;
  }
}

}  // namespace
}  // namespace hvd::discovery
