#include <fstream>
#include <gtest/gtest.h>

#include "base/machine/capacity.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

TEST(Gpus, TheyAreCountedByTheirDeviceFilesAndNothingElseIs) {
  const test::TemporaryDirectory devices;
  EXPECT_EQ(count_gpus(devices.path()), 0);
  for (const char* const name :
       {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "null"}) {
    std::ofstream(std::filesystem::path(devices.path()) / name) << "";
  }
  EXPECT_EQ(count_gpus(devices.path()), 3);
  EXPECT_EQ(count_gpus(std::filesystem::path(devices.path()) / "not there"), 0);
}

TEST(Gpus, TheEnvironmentLeavesSomeOfThem) {
  EXPECT_EQ(visible_gpus(4, std::nullopt), 4);
  EXPECT_EQ(visible_gpus(4, ""), 0);
  EXPECT_EQ(visible_gpus(4, "2"), 1);
  EXPECT_EQ(visible_gpus(4, "0,3"), 2);
  EXPECT_EQ(visible_gpus(4, "GPU-8932f937,MIG-1,MIG-2"), 3);
  for (const char* const ends : {"0,1,-1,2", "0,1,4,2", "0,1,,2", "0,1,none,2"}) {
    EXPECT_EQ(visible_gpus(4, ends), 2) << ends;
  }
  EXPECT_EQ(visible_gpus(0, "0,1"), 0);
}

}  // namespace
}  // namespace hvd
