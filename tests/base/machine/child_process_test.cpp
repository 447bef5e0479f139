#include "base/machine/child_process.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/support/process.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd {
namespace {

ChildProcess start_shell(const std::string& script) {
  auto child = ChildProcess::start([&]() -> Result<pid_t> {
    std::vector<std::string> words{"/bin/sh", "-c", script};
    std::vector<char*> arguments{words[0].data(), words[1].data(), words[2].data(), nullptr};
    posix_spawnattr_t attributes{};
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    pid_t pid = -1;
    const int error =
        ::posix_spawn(&pid, arguments[0], nullptr, &attributes, arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) return Status::from_errno("start a shell", error);
    return pid;
  });
  EXPECT_TRUE(child.ok()) << child.status().message();
  return child.ok() ? *std::move(child) : ChildProcess();
}

bool is_without_owner(pid_t pid) {
  const auto children = children_without_owner();
  return std::find(children.begin(), children.end(), pid) != children.end();
}

TEST(ChildProcess, tells_how_it_has_ended_and_is_gone) {
  ChildProcess child = start_shell("exit 7");
  const auto status = child.wait();
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_TRUE(WIFEXITED(*status));
  EXPECT_EQ(WEXITSTATUS(*status), 7);
  EXPECT_EQ(child.pid(), -1);
  EXPECT_FALSE(child.wait().ok());
}

TEST(ChildProcess, ends_with_its_owner) {
  pid_t pid = -1;
  {
    const ChildProcess child = start_shell("exec sleep 1000");
    pid = child.pid();
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ChildProcess, is_signalled_with_the_group_that_it_leads) {
  const test::TemporaryDirectory directory;
  const std::string mark = directory.path().string();
  ASSERT_EQ(::setenv("HVD_CHILD_TEST", mark.c_str(), 1), 0);  // NOLINT(concurrency-mt-unsafe)
  ChildProcess child = start_shell("sleep 1000 & exec sleep 1000");
  ::unsetenv("HVD_CHILD_TEST");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_TRUE(test::eventually(
      [&] { return test::processes_with_variable("HVD_CHILD_TEST", mark).size() == 2; }));
  child.signal_group(SIGTERM);
  const auto status = child.wait();
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_TRUE(WIFSIGNALED(*status));
  EXPECT_TRUE(test::wait_until_gone("HVD_CHILD_TEST", mark));
}

// The kernel reaps the children of a process that ignores SIGCHLD.
TEST(ChildProcess, has_no_status_once_somebody_else_has_reaped_it) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  ChildProcess child = start_shell("exit 1");
  const auto status = child.wait();
  std::signal(SIGCHLD, before);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(child.pid(), -1);
}

TEST(ChildProcess, is_without_owner_once_it_was_disowned) {
  ChildProcess child = start_shell("exec sleep 1000");
  const pid_t pid = child.pid();
  EXPECT_FALSE(is_without_owner(pid));
  ChildProcess moved = std::move(child);
  EXPECT_FALSE(is_without_owner(pid));
  moved.disown();
  EXPECT_EQ(moved.pid(), -1);
  EXPECT_TRUE(is_without_owner(pid));
  ::kill(pid, SIGKILL);
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_FALSE(is_without_owner(pid));
}

// SSH starters run proxy commands while the driver looks for orphans.
TEST(ChildProcess, has_an_owner_from_its_start_to_its_end) {
  std::atomic<bool> over = false;
  std::thread starter([&] {
    for (int i = 0; i < 300; ++i) {
      ChildProcess child = start_shell("exit 0");
      static_cast<void>(child.wait());
    }
    over = true;
  });
  std::vector<pid_t> found;
  while (!over) {
    for (const pid_t pid : children_without_owner()) found.push_back(pid);
  }
  starter.join();
  EXPECT_EQ(found, std::vector<pid_t>());
}

}  // namespace
}  // namespace hvd
