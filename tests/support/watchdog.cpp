#include "tests/support/watchdog.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

namespace hvd::test {
namespace {

// Such tests end within a second; sanitizers and a busy machine make that several.
constexpr std::chrono::seconds kLimit{40};

std::array<char, 512> last_words{};  // what the handler writes, since it may call nothing else
int last_words_size = 0;

void on_alarm(int /*signal*/) {
  [[maybe_unused]] const ssize_t written =
      ::write(STDOUT_FILENO, last_words.data(), static_cast<std::size_t>(last_words_size));
  ::_exit(1);
}

void set_timer(std::chrono::milliseconds time) {
  itimerval timer{};
  timer.it_value.tv_sec = static_cast<time_t>(time.count() / 1000);
  timer.it_value.tv_usec = static_cast<suseconds_t>(time.count() % 1000 * 1000);
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

class Watchdog : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    begin_watch(std::string(test.test_suite_name()) + "." + test.name(), kLimit);
  }
  void OnTestEnd(const testing::TestInfo& /*test*/) override { end_watch(); }
};

[[maybe_unused]] const bool watches = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog);  // which owns it
  return true;
}();

}  // namespace

void begin_watch(const std::string& name, std::chrono::milliseconds limit) {
  const int size = std::snprintf(last_words.data(), last_words.size(),
                                 "[  FAILED  ] %s: it has not ended within %lld ms, and hangs\n",
                                 name.c_str(), static_cast<long long>(limit.count()));
  last_words_size = std::min(size, static_cast<int>(last_words.size()) - 1);
  std::signal(SIGALRM, on_alarm);
  set_timer(limit);
}

void end_watch() { set_timer(std::chrono::milliseconds(0)); }

}  // namespace hvd::test
