// The walk over /proc, from both of its sources.
#include "cmd/hvd-agent/process_tree.h"

#include <algorithm>
#include <csignal>
#include <gtest/gtest.h>
#include <optional>
#include <set>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/machine/proc.h"
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
  EXPECT_EQ(signal_descendant({mine.pid(), 999'999}, 999'998, SIGKILL), Signalled::unknown);
  EXPECT_EQ(::waitpid(mine.pid(), nullptr, WNOHANG), 0);
  EXPECT_EQ(signal_descendant({mine.pid(), ::getpid()}, 999'998, SIGKILL), Signalled::yes);
  EXPECT_EQ(mine.wait().signal, SIGKILL);
  EXPECT_EQ(signal_descendant({mine.pid(), ::getpid()}, 999'998, SIGKILL), Signalled::gone);
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

// While it lives, this process can read nothing of /proc.
class BlindProcess {
 public:
  BlindProcess() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~BlindProcess() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  BlindProcess(const BlindProcess&) = delete;
  BlindProcess& operator=(const BlindProcess&) = delete;

 private:
  rlimit before_{};
};

TEST(ProcessTreeKill, SaysWhatItHasFrozenThoughItCannotFindItAgain) {
  test::Process shell({"sh", "-c", "sleep 1000 & wait"});
  ASSERT_TRUE(eventually([&] { return descendants_of(shell.pid()).size() == 1; }));
  const pid_t child = descendants_of(shell.pid())[0].pid;
  std::optional<BlindProcess> blind;
  int walks = 0;
  const auto pass = kill_descendants(shell.pid(), [&] {
    if (++walks == 2) blind.emplace();
  });
  blind.reset();
  EXPECT_EQ(pass.found, std::vector<pid_t>{child}) << "it is to be killed by the next pass";
  EXPECT_TRUE(eventually([&] { return kill_descendants(shell.pid(), [] {}).found.empty(); }));
}

class ProcessTreeThaw : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eventually([&] { return descendants_of(shell_.pid()).size() == 1; }));
    child_ = descendants_of(shell_.pid())[0].pid;
    freeze_descendants(
        shell_.pid(), [] {}, frozen_);
    ASSERT_EQ(frozen_, std::set<pid_t>{child_});
    ASSERT_TRUE(eventually([&] { return is_stopped(child_); }));
  }

  test::Process shell_{{"sh", "-c", "sleep 1000 & wait"}};
  pid_t child_ = 0;
  std::set<pid_t> frozen_;
};

TEST_F(ProcessTreeThaw, KeepsWhatItCannotFind) {
  {
    const BlindProcess blind;
    thaw_descendants(shell_.pid(), frozen_);
  }
  EXPECT_EQ(frozen_, std::set<pid_t>{child_});
  EXPECT_TRUE(is_stopped(child_));
  thaw_descendants(shell_.pid(), frozen_);
  EXPECT_TRUE(frozen_.empty());
  EXPECT_FALSE(is_stopped(child_));
}

TEST_F(ProcessTreeThaw, ForgetsWhatIsGone) {
  frozen_.insert(::getpid());  // as if the number of one that has ended were another's
  ::kill(child_, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    thaw_descendants(shell_.pid(), frozen_);
    return frozen_.empty();
  }));
}

}  // namespace
}  // namespace hvd::agent
