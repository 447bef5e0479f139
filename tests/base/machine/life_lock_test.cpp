#include "base/machine/life_lock.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/text.h"
#include "tests/support/missing_calls.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

// A child that holds the lock, runs `body`, and then sleeps.
pid_t child_that_holds(
    const LifeLock& lock, const std::function<void()>& body = [] {}) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  auto own = LifeLock::open(lock.duplicate().get());
  if (!own.ok()) ::_exit(90);
  own->hold();
  body();
  for (;;) ::pause();
}

int reap(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(LifeLock, TellsOfADeathByASignal) {
  auto lock = LifeLock::make();
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  const pid_t child = child_that_holds(*lock, [] { ::raise(SIGKILL); });
  EXPECT_TRUE(lock->wait_for_end());
  EXPECT_EQ(reap(child), SIGKILL);
}

TEST(LifeLock, TellsOfAnExitAndOfTheNextHolder) {
  auto lock = LifeLock::make();
  ASSERT_TRUE(lock.ok());
  for (int i = 0; i < 3; ++i) {
    const pid_t child = child_that_holds(*lock, [] { ::_exit(3); });
    EXPECT_TRUE(lock->wait_for_end());
    EXPECT_EQ(WEXITSTATUS(reap(child)), 3);
  }
}

TEST(LifeLock, TellsOfAThreadThatHoldsItForItsProcess) {
  auto lock = LifeLock::make();
  ASSERT_TRUE(lock.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    auto own = LifeLock::open(lock->duplicate().get());
    std::thread([&own] {
      own->hold();
      ::kill(::getpid(), SIGKILL);
      for (;;) ::pause();
    }).join();
  }
  EXPECT_TRUE(lock->wait_for_end());
  EXPECT_EQ(reap(child), SIGKILL);
}

// A filter for system calls may refuse what the C library asks for each thread.
TEST(LifeLock, IsLeftFreeWhereTheKernelWouldNotGiveItUp) {
  auto lock = LifeLock::make();
  ASSERT_TRUE(lock.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    auto own = LifeLock::open(lock->duplicate().get());
    if (!test::take_away({"set_robust_list"}, EPERM)) ::_exit(77);
    std::thread([&own] {
      own->hold();
      ::_exit(3);
    }).join();
  }
  const int status = reap(child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(WEXITSTATUS(status), 3);

  std::promise<void> held;
  std::thread next([&] {
    lock->hold();
    held.set_value();
  });
  if (held.get_future().wait_for(test::kGenerous) != std::future_status::ready) {
    // Nothing ends that thread but the end of the process.
    std::fputs("a process that has ended has left the lock locked\n", stderr);
    ::_exit(1);
  }
  next.join();
}

TEST(LifeLock, EndsItsWaitWhenItIsStopped) {
  auto lock = LifeLock::make();
  ASSERT_TRUE(lock.ok());
  bool result = true;
  std::thread waiter([&] { result = lock->wait_for_end(); });
  lock->stop();
  waiter.join();
  EXPECT_FALSE(result);
}

TEST(LifeLock, IsNoOtherFile) {
  const auto lock = LifeLock::make();
  ASSERT_TRUE(lock.ok());
  struct stat about {};
  ASSERT_EQ(::fstat(lock->duplicate().get(), &about), 0);
  const int seals = ::fcntl(lock->duplicate().get(), F_GET_SEALS);

  const auto memory = [](off_t bytes) {
    UniqueFd made(::memfd_create("no lock", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(made.get(), bytes), 0);
    return made;
  };
  const UniqueFd program(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const UniqueFd without_seals = memory(about.st_size);
  const UniqueFd of_another_size = memory(about.st_size + 1);
  ASSERT_EQ(::fcntl(of_another_size.get(), F_ADD_SEALS, seals), 0);
  for (const int descriptor :
       {program.get(), without_seals.get(), of_another_size.get(), -1, 1'000'000}) {
    const auto opened = LifeLock::open(descriptor);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().message(), cat("descriptor ", descriptor, " is not a life lock"));
  }
}

TEST(Proc, KnowsHowAProcessFailedBeforeItsParentHasWaited) {
  const auto failure_of = [](const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      body();
      ::_exit(0);
    }
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    const auto failure = failure_of_dying(child);
    EXPECT_EQ(reap(child), failure.value_or(0));
    return failure;
  };
  EXPECT_EQ(failure_of([] { ::raise(SIGKILL); }), SIGKILL);
  EXPECT_EQ(failure_of([] { ::_exit(3); }), 3 << 8);
  EXPECT_EQ(failure_of([] {}), std::nullopt) << "it ends with 0";
  EXPECT_EQ(failure_of_dying(::getpid()), std::nullopt) << "it lives";
  EXPECT_EQ(failure_of_dying(-1), std::nullopt);
}

}  // namespace
}  // namespace hvd
