#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "base/machine/cgroup.h"
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
  // Both numbers of the group itself, or of one below it; {-1, -1}: nothing is known.
  std::pair<long, long> events(const std::string& membership, const std::string& below = "") const {
    const auto found = memory_events(membership, root());
    for (const auto& [group, events] : found) {
      if (!below.empty() && !group.ends_with(below)) continue;
      return {static_cast<long>(events.kills), static_cast<long>(events.limit)};
    }
    return {-1, -1};
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
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.begin()->second.kills, 4U);
}

TEST_F(OutOfMemory, GroupsBelowCountOnTheirOwn) {
  write("memory/a/memory.oom_control", "oom_kill 2");
  write("memory/a/memory.limit_in_bytes", "1048576");
  write("memory/a/step/memory.oom_control", "oom_kill 1");
  write("memory/a/step/memory.limit_in_bytes", "65536");
  write("memory/a/step/task/memory.oom_control", "oom_kill 7");
  EXPECT_EQ(events("4:memory:/a\n"), Pair(2, 1048576));
  EXPECT_EQ(events("4:memory:/a\n", "/step"), Pair(1, 65536));
  EXPECT_EQ(events("4:memory:/a\n", "/task"), Pair(7, 65536));
  write("b/memory.events.local", "oom_kill 3");
  write("b/memory.events", "oom_kill 5");
  write("b/step/memory.events.local", "oom_kill 2");
  write("b/step/memory.max", "4096");
  EXPECT_EQ(events("0::/b\n"), Pair(3, 0));
  EXPECT_EQ(events("0::/b\n", "/step"), Pair(2, 4096));
}

TEST_F(OutOfMemory, NothingBelowTheRootCounts) {
  write("memory/memory.oom_control", "oom_kill 2");
  write("memory/a/memory.oom_control", "oom_kill 1");
  EXPECT_EQ(memory_events("4:memory:/\n", root()).size(), 1U);
}

}  // namespace
}  // namespace hvd
