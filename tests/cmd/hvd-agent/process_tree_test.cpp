// The walk over /proc, from both of its sources.
#include "cmd/hvd-agent/process_tree.h"

#include <algorithm>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/process.h"

namespace hvd::agent {
namespace {

using test::eventually;

// The same processes, whatever the source.
class ProcessTree : public testing::TestWithParam<TreeSource> {};

bool holds(const std::vector<Descendant>& processes, pid_t pid, pid_t parent) {
  return std::any_of(processes.begin(), processes.end(), [&](const Descendant& process) {
    return process.pid == pid && process.parent == parent;
  });
}

TEST_P(ProcessTree, SeesChildrenOfEveryDepth) {
  test::Process shell({"sh", "-c", "sh -c 'sleep 1000 & echo $!; wait' & echo $!; wait"});
  ASSERT_TRUE(eventually([&] { return descendants_of(shell.pid(), GetParam()).size() == 2; }));
  const auto found = descendants_of(shell.pid(), GetParam());
  EXPECT_EQ(found[0].parent, shell.pid());
  EXPECT_TRUE(holds(found, found[1].pid, found[0].pid));
  EXPECT_TRUE(descendants_of(found[1].pid, GetParam()).empty());
}

TEST_P(ProcessTree, SeesNothingOfAProcessThatIsGone) {
  test::Process process({"true"});
  const pid_t pid = process.pid();
  process.wait();
  EXPECT_TRUE(descendants_of(pid, GetParam()).empty());
}

INSTANTIATE_TEST_SUITE_P(Sources, ProcessTree,
                         testing::Values(TreeSource::process_table, best_tree_source()),
                         [](const auto& parameter) {
                           return std::string(parameter.index == 0 ? "table" : "best");
                         });

TEST(ProcessTreeSignal, NeverHitsAStranger) {
  test::Process mine({"sleep", "1000"});
  // As if the number had been another process's child when it was seen.
  EXPECT_TRUE(signal_descendant({mine.pid(), 999'999}, 999'998, SIGKILL));
  EXPECT_EQ(::waitpid(mine.pid(), nullptr, WNOHANG), 0);
  EXPECT_TRUE(signal_descendant({mine.pid(), ::getpid()}, 999'998, SIGKILL));
  EXPECT_EQ(mine.wait().signal, SIGKILL);
}

TEST(ProcessTreeKill, SparesTheProcessesThatAreNamed) {
  test::Process shell({"sh", "-c", "sleep 1000 & sleep 1001 & wait"});
  ASSERT_TRUE(eventually([&] { return descendants_of(shell.pid()).size() == 2; }));
  const auto children = descendants_of(shell.pid());
  const auto pass = kill_descendants(shell.pid(), [] {}, {children[0].pid});
  EXPECT_EQ(pass.found, std::vector<pid_t>{children[1].pid});
  EXPECT_TRUE(pass.forbidden.empty());
  EXPECT_EQ(::kill(children[0].pid, 0), 0);
}

}  // namespace
}  // namespace hvd::agent
