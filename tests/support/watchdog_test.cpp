#include "tests/support/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace hvd::test {
namespace {

TEST(Watchdog, NamesATestThatHangsAndEndsTheProgram) {
  const auto hang = [] {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);  // where the test looks for the message
    begin_watch("Suite.Hangs", std::chrono::milliseconds(20));
    for (;;) ::pause();
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1),
              "\\[  FAILED  \\] Suite.Hangs: it has not ended within 20 ms");
}

TEST(Watchdog, LeavesATestAloneThatEnds) {
  const auto ends = [] {
    begin_watch("Suite.Ends", std::chrono::milliseconds(20));
    end_watch();
    ::usleep(60'000);  // nothing can be waited for: nothing happens
    ::_exit(7);
  };
  EXPECT_EXIT(ends(), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace hvd::test
