#include "base/descriptors.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/security/crypto.h"
#include "base/security/random.h"
#include "tests/support/missing_calls.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

constexpr int kCannot = 77;

// With and without what the kernel may lack, and as old containers forbid it.
struct Kernel {
  const char* name;
  std::vector<std::string> missing;
  int error;
};

class Descriptors : public testing::TestWithParam<Kernel> {
 protected:
  // The exit code of `act` in a child that has this kernel.
  static int in_child(const std::function<int()>& act) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto& kernel = GetParam();
      const bool taken = kernel.missing.empty() || test::take_away(kernel.missing, kernel.error);
      ::_exit(taken ? act() : kCannot);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    return WEXITSTATUS(status);
  }
};

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST_P(Descriptors, AreClosedFromHereToThere) {
  const int code = in_child([] {
    for (int fd = 100; fd < 600; ++fd) ::dup2(STDERR_FILENO, fd);
    if (!close_descriptors(200, 299)) return 1;
    if (!is_open(199) || is_open(200) || is_open(299) || !is_open(300)) return 2;
    if (!close_descriptors(150)) return 3;
    for (int fd = 150; fd < 1000; ++fd) {
      if (is_open(fd)) return 4;
    }
    return is_open(149) && is_open(STDERR_FILENO) ? 0 : 5;
  });
  if (code == kCannot) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(code, 0);
}

TEST_P(Descriptors, TellOfTheEndOfAChild) {
  const int code = in_child([] {
    auto pipe = make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
      char byte = 0;
      pipe->write_end.reset();
      (void)!::read(pipe->read_end.get(), &byte, 1);
      ::_exit(3);
    }
    auto watch = watch_child(child);
    if (!watch.ok()) return 1;
    pollfd ended{watch->get(), POLLIN, 0};
    if (::poll(&ended, 1, 20) != 0) return 2;
    if (wait_for_child(child, Clock::now())) return 3;
    pipe->write_end.reset();
    if (!wait_for_child(child, Clock::now() + test::kGenerous)) return 4;
    if (::poll(&ended, 1, 60'000) != 1) return 5;
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3 ? 0 : 6;
  });
  if (code == kCannot) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(code, 0);
}

TEST_P(Descriptors, TellOfTheEndOfAChildThatTheKernelHasReapedAlready) {
  const int code = in_child([] {
    std::signal(SIGCHLD, SIG_IGN);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(3);
    // It waits until no child is left, and then finds none.
    if (::waitpid(child, nullptr, 0) != -1) return 1;
    const auto watch = watch_child(child);
    if (!watch.ok()) return 2;
    pollfd ended{watch->get(), POLLIN, 0};
    return ::poll(&ended, 1, 60'000) == 1 ? 0 : 3;
  });
  if (code == kCannot) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(code, 0);
}

TEST_P(Descriptors, RandomBytesAreHadAllTheSame) {
  const int code = in_child([] {
    std::array<unsigned char, 64> bytes{};
    ::alarm(20);
    fill_random(bytes.data(), bytes.size());
    int zeros = 0;
    for (const auto byte : bytes) zeros += byte == 0 ? 1 : 0;
    return zeros < 16 && random_bytes(16) != random_bytes(16) ? 0 : 1;
  });
  if (code == kCannot) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(code, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, Descriptors,
    testing::Values(Kernel{"New", {}, 0},
                    Kernel{"Old", {"close_range", "pidfd_open", "getrandom"}, ENOSYS},
                    Kernel{"Filtered", {"close_range", "pidfd_open", "getrandom"}, EPERM}),
    [](const auto& kernel) { return std::string(kernel.param.name); });

// Never a key that is no secret, and never a process that spins.
TEST(Random, WithoutAnySourceTheProcessEndsAndSaysSo) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!test::take_away({"getrandom"}, ENOSYS)) ::_exit(kCannot);
    ::alarm(20);
    const rlimit none{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &none);  // so that the device cannot be opened, either
    unsigned char byte = 0;
    fill_random(&byte, 1);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) {
    GTEST_SKIP() << "this kernel takes no filter for system calls";
  }
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

}  // namespace
}  // namespace hvd
