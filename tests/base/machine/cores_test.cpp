#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "base/machine/capacity.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

class Cores : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const auto path = root() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::optional<int> quota(const std::string& membership) const {
    return cores_by_quota(membership, root());
  }
  std::filesystem::path root() const { return folder_.path(); }

 private:
  test::TemporaryDirectory folder_;
};

TEST_F(Cores, WithoutAQuotaNothingIsSaid) {
  EXPECT_EQ(quota(""), std::nullopt);
  EXPECT_EQ(quota("0::/a/b\n"), std::nullopt);
  write("a/cpu.max", "max 100000");
  EXPECT_EQ(quota("0::/a/b\n"), std::nullopt);
  EXPECT_EQ(quota("no control group\n:\n::\n"), std::nullopt);
}

TEST_F(Cores, TheTightestQuotaOnTheWayToTheRootCounts) {
  write("a/b/cpu.max", "800000 100000");
  EXPECT_EQ(quota("0::/a/b\n"), 8);
  write("a/cpu.max", "300000 100000");
  EXPECT_EQ(quota("0::/a/b\n"), 3);
  write("cpu.max", "200000 50000");
  EXPECT_EQ(quota("0::/a/b\n"), 3);
  EXPECT_EQ(quota("0::/elsewhere/outside/this/container\n"), 4);
  EXPECT_EQ(quota("0::/../../other\n"), 4);
  EXPECT_EQ(quota("0::\n"), 4);
}

TEST_F(Cores, OnlyWholeProcessorsCountAndOneIsAlwaysThere) {
  write("cpu.max", "250000 100000");
  EXPECT_EQ(quota("0::/\n"), 2);
  write("cpu.max", "50000 100000");
  EXPECT_EQ(quota("0::/\n"), 1);
  for (const char* const rubbish : {"", "many 100000", "100000", "100000 0", "-1 100000"}) {
    write("cpu.max", rubbish);
    EXPECT_EQ(quota("0::/\n"), std::nullopt) << rubbish;
  }
}

TEST_F(Cores, QuotasOfTheFirstVersionAreUnderstood) {
  const std::string membership = "5:memory:/m\n4:cpuset:/s\n3:cpu,cpuacct:/docker/c\n0::/\n";
  write("cpu,cpuacct/docker/c/cpu.cfs_quota_us", "400000");
  write("cpu,cpuacct/docker/c/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(membership), 4);
  write("cpu/cpu.cfs_quota_us", "200000");
  write("cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(membership), 2);
  EXPECT_EQ(quota("3:cpu:/docker/c\n"), 2);
  write("cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(quota(membership), 4);
}

TEST_F(Cores, ThisProcessHasSomeAndNoMoreThanTheMachine) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(Capacity, ThereIsRoomForOneWorkerOnEachGpuAndWithoutAnyOnEachCore) {
  EXPECT_EQ(slots_by({4, 64}), 4);
  EXPECT_EQ(slots_by({0, 64}), 64);
  EXPECT_EQ(slots_by({0, 0}), 1);
  EXPECT_EQ(slots_text({4, 64}), "4 slots, one for each GPU");
  EXPECT_EQ(slots_text({0, 64}), "64 slots, one for each core");
  EXPECT_EQ(slots_text({1, 64}), "1 slot, for its GPU");
  EXPECT_EQ(slots_text({0, 1}), "1 slot, for its core");
}

}  // namespace
}  // namespace hvd
