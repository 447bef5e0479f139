// Texts about a job that need no job.
#include <gtest/gtest.h>

#include "driver/job/job_io.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

TEST(AbsentText, says_for_how_long_in_whole_seconds_once_there_are_any) {
  const auto waited = [](int time) {
    const std::string text = absent_text("sleeps", 0, 1, milliseconds(time), milliseconds(60'000));
    return text.substr(0, text.find(','));
  };
  EXPECT_EQ(waited(300), " has not called hvd::init for 0.3 s");
  EXPECT_EQ(waited(999), " has not called hvd::init for 1 s");
  EXPECT_EQ(waited(1'000), " has not called hvd::init for 1 s");
  EXPECT_EQ(waited(12'900), " has not called hvd::init for 12 s");
}

TEST(AbsentText, counts_absent_hosts_likewise) {
  const auto text = [](std::size_t absent, int limit) {
    return absent_text("sleeps", 2, absent, milliseconds(5'000), milliseconds(limit));
  };
  EXPECT_EQ(text(1, 60'000),
            " has not called hvd::init for 5 s, and rank 2 waits for it there, at most 60 s "
            "(--init-timeout): sleeps");
  EXPECT_TRUE(text(2, 60'000).ends_with(": sleeps; 1 other likewise"));
  EXPECT_TRUE(text(3, 60'000).ends_with(": sleeps; 2 others likewise"));
  EXPECT_NE(text(1, 0).find("waits for it there, for as long as it lives: "), std::string::npos);
}

TEST(ExitText, SaysWhatTheAccountOfTheControlGroupSays) {
  event::Exited exited{.host = 0, .incarnation = 1, .signal_number = 9};
  EXPECT_EQ(exit_text(exited), "was killed by SIGKILL (signal 9)");
  exited.out_of_memory = true;
  EXPECT_EQ(exit_text(exited), "was killed by SIGKILL (signal 9): out of memory");
  exited.memory_limit = std::uint64_t{1536} << 20;
  EXPECT_EQ(
      exit_text(exited),
      "was killed by SIGKILL (signal 9): out of memory (the memory limit of its control group "
      "is 1.5 GiB)");
}

}  // namespace
}  // namespace hvd::driver
