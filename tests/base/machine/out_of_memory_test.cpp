#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "base/machine/cgroup.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

// Files of control groups.
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

class MemoryAndSwap : public OutOfMemory {
 protected:
  // On a machine with 1,000 bytes of memory and 100 of swap.
  std::uint64_t within(const std::string& membership) const {
    return memory_and_swap_within(1'000, 100, membership, root());
  }
};

TEST_F(MemoryAndSwap, AreThoseOfTheMachineWithoutLimits) {
  EXPECT_EQ(within(""), 1'100U);
  write("a/memory.max", "max");
  write("a/memory.swap.max", "max");
  write("memory/a/memory.limit_in_bytes", "9223372036854771712");
  write("memory/a/memory.memsw.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(within("4:memory:/a\n0::/a\n"), 1'100U);
  write("a/memory.max", "2000");
  EXPECT_EQ(within("0::/a\n"), 1'100U) << "more than there is";
}

TEST_F(MemoryAndSwap, AreLimitedByEachGroupOnTheWayToTheRoot) {
  write("a/b/memory.max", "700");
  EXPECT_EQ(within("0::/a/b\n"), 800U);
  write("a/memory.max", "500");
  write("a/b/memory.swap.max", "0");
  EXPECT_EQ(within("0::/a/b\n"), 500U);
  EXPECT_EQ(within("0::/a\n"), 600U) << "the limit of swap is another group's";
  write("memory.max", "300");
  EXPECT_EQ(within("0::/elsewhere/outside/this/container\n"), 400U);
  EXPECT_EQ(within("5:cpu:/a\n"), 1'100U);
}

TEST_F(MemoryAndSwap, AreLimitedByGroupsOfVersion1) {
  write("memory/a/memory.limit_in_bytes", "700");
  EXPECT_EQ(within("4:memory:/a/b\n"), 800U);
  write("memory/memory.memsw.limit_in_bytes", "750");
  EXPECT_EQ(within("4:memory:/a/b\n"), 750U);
}

}  // namespace
}  // namespace hvd
