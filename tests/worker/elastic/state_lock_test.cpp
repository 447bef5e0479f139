// The lock on a state file: of several jobs one has it at a time, and nothing is left of it.
#include "worker/elastic/state_lock.h"

#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::worker {
namespace {

class StateLocks : public testing::Test {
 protected:
  // A child whose exit code is what this returns.
  template <typename Work>
  static pid_t start(const Work& work) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work());
    return child;
  }
  static int end_of(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // Takes the lock and gives it back again and again; 1: another process had it at the same time.
  int contend(const std::string& job) const {
    const std::string claim = file() + ".claim";
    for (int turn = 0; turn < 300; ++turn) {
      StateLock lock(file(), job);
      while (!lock.take().ok()) {
      }
      const int fd = ::open(claim.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
      if (fd < 0) return 1;
      ::close(fd);
      ::unlink(claim.c_str());
      lock.release();
    }
    return 0;
  }
  std::string file() const { return (directory_.path() / "state").string(); }
  bool is_empty() const { return std::filesystem::is_empty(directory_.path()); }

  const test::TemporaryDirectory directory_;
};

TEST_F(StateLocks, OneJobHasItAtATime) {
  std::vector<pid_t> children;
  for (int job = 0; job < 4; ++job) {
    children.push_back(start([&] { return contend(cat("job", job)); }));
  }
  for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
  EXPECT_TRUE(is_empty());
}

TEST_F(StateLocks, AnotherJobIsNamedAndThisJobIsNoObstacle) {
  StateLock lock(file(), "job1");
  ASSERT_TRUE(lock.take().ok());
  EXPECT_TRUE(lock.is_held());
  EXPECT_EQ(end_of(start([&] {
              const Status other = StateLock(file(), "job2").take();
              const bool is_named = other.message() ==
                                    cat("keep the state in ", file(), ": it is in use by job job1");
              StateLock next(file(), "job1");
              return is_named && next.take().ok() && !next.is_held() ? 0 : 1;
            })),
            0);
  lock.release();
  EXPECT_TRUE(is_empty());
}

// Also after a process that did not give it back.
TEST_F(StateLocks, ItEndsWithItsProcess) {
  EXPECT_EQ(end_of(start([&] { return StateLock(file(), "job1").take().ok() ? 0 : 1; })), 0);
  EXPECT_FALSE(is_empty());
  StateLock lock(file(), "job2");
  EXPECT_TRUE(lock.take().ok());
  lock.release();
  EXPECT_TRUE(is_empty());
}

}  // namespace
}  // namespace hvd::worker
