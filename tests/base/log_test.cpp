#include "base/log.h"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "base/text.h"

namespace hvd {
namespace {

class Log : public testing::Test {
 protected:
  ~Log() override { set_log_options({}); }

  static std::string logged(const LogOptions& options, void (*act)()) {
    set_log_options(options);
    testing::internal::CaptureStderr();
    act();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, ReadsLevelsAsPeopleSpellThem) {
  EXPECT_EQ(parse_log_level("TRACE"), LogLevel::trace);
  EXPECT_EQ(parse_log_level("Warning"), LogLevel::warning);
  EXPECT_EQ(parse_log_level("warn"), LogLevel::warning);
  EXPECT_EQ(parse_log_level("fatal"), LogLevel::fatal);
  EXPECT_EQ(parse_log_level("off"), LogLevel::off);
  for (const char* const wrong : {"", "loud", "warning ", "3"})
    EXPECT_FALSE(parse_log_level(wrong));
}

TEST_F(Log, PrintsSourceLevelAndMessageInOneLine) {
  const auto text = logged({LogLevel::info, false, "rank 3"},
                           [] {
                             HVD_LOG(info, "host "
                                               << "a"
                                               << " has " << 2 << " slots");
                           });
  EXPECT_EQ(text, "[rank 3 info] host a has 2 slots\n");
}

TEST_F(Log, PrintsNothingBelowItsLevelAndBuildsNoMessage) {
  const auto text = logged({LogLevel::error, true, ""}, [] {
    HVD_LOG(warning, [] {
      ADD_FAILURE() << "the message was built";
      return "";
    }());
  });
  EXPECT_EQ(text, "");
}

TEST_F(Log, OffIsSilent) {
  EXPECT_EQ(logged({LogLevel::off, true, ""}, [] { HVD_LOG(fatal, "x"); }), "");
}

TEST_F(Log, LinesOfThreadsDoNotMix) {
  const auto text = logged({LogLevel::info, false, ""}, [] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 200; ++i) HVD_LOG(info, std::string(40, static_cast<char>('a' + t)));
      });
    }
    for (auto& thread : threads) thread.join();
  });
  auto lines = split(text, '\n');
  lines.pop_back();
  EXPECT_EQ(lines.size(), 800U);
  for (const auto& line : lines) {
    ASSERT_EQ(line.size(), 47U) << line;
    EXPECT_EQ(line.find_first_not_of(line[7], 7), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace hvd
