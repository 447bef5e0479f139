#include "base/machine/out_of_memory.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "tests/support/process.h"

namespace hvd {
namespace {

class OutOfMemory : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const auto path = root() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  // Both numbers; {-1, -1}: nothing is known.
  std::pair<long, long> events(const std::string& membership) const {
    const auto found = memory_events(membership, root());
    if (!found) return {-1, -1};
    return {static_cast<long>(found->kills), static_cast<long>(found->limit)};
  }
  std::filesystem::path root() const { return folder_.path(); }

 private:
  test::TemporaryDirectory folder_;
};

using Pair = std::pair<long, long>;

TEST_F(OutOfMemory, WithoutAnAccountNothingIsKnown) {
  EXPECT_EQ(events(""), Pair(-1, -1));
  EXPECT_EQ(events("0::/a\n"), Pair(-1, -1));
  EXPECT_EQ(events("no control group\n:\n::\n"), Pair(-1, -1));
  write("a/memory.events", "low 0\noom many\noom_kill many");
  EXPECT_EQ(events("0::/a\n"), Pair(-1, -1));
}

TEST_F(OutOfMemory, Version2CountsInMemoryEvents) {
  write("a/b/memory.events", "low 0\nhigh 0\nmax 17\noom 5\noom_kill 3\noom_group_kill 1");
  write("a/b/memory.max", "max");
  EXPECT_EQ(events("0::/a/b\n"), Pair(3, 0));
  write("a/memory.events", "oom_kill 9");
  write("a/memory.max", "67108864");
  EXPECT_EQ(events("0::/a/b\n"), Pair(3, 67108864)) << "a limit holds for all below";
  EXPECT_EQ(events("0::/a/elsewhere/outside/this/container\n"), Pair(9, 67108864));
}

TEST_F(OutOfMemory, Version1CountsInOomControl) {
  write("memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2");
  write("memory/a/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(events("4:memory:/a\n0::/\n"), Pair(2, 0)) << "that number is no limit";
  write("memory/a/memory.limit_in_bytes", "1048576");
  EXPECT_EQ(events("4:memory:/a\n0::/\n"), Pair(2, 1048576));
  EXPECT_EQ(events("0::/\n4:memory:/a\n"), Pair(2, 1048576));
  EXPECT_EQ(events("4:cpu:/a\n"), Pair(-1, -1));
}

TEST_F(OutOfMemory, APathThatLeavesTheHierarchyIsTheRoot) {
  write("mounted/memory.events", "oom_kill 4");
  write("other/memory.events", "oom_kill 5");
  const auto found = memory_events("0::/../other\n", root() / "mounted");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kills, 4U);
}

}  // namespace
}  // namespace hvd
