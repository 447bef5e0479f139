#include "driver/core/signals.h"

#include <csignal>
#include <gtest/gtest.h>
#include <vector>

#include "tests/support/process.h"

namespace hvd::driver {
namespace {

class SignalsThatEndAJob : public testing::Test {
 protected:
  SignalsThatEndAJob() {
    signals_.handle([this](int number) { seen_.push_back(number); });
  }
  void get(int number) {
    ::raise(number);
    io_.poll();
  }

  // A shell that runs the tests in the background ignores some of them.
  struct Defaults {
    Defaults() {
      for (const int number : {SIGINT, SIGQUIT, SIGHUP}) std::signal(number, SIG_DFL);
    }
  } defaults_;
  boost::asio::io_context io_{1};
  Signals signals_{io_};
  std::vector<int> seen_;
};

TEST_F(SignalsThatEndAJob, OneThatIsIgnoredStaysSo) {
  std::signal(SIGINT, SIG_IGN);
  boost::asio::io_context io{1};
  Signals signals(io);
  ::raise(SIGINT);
  io.poll();
  EXPECT_EQ(signals.waiting(), 0);
  EXPECT_TRUE(is_ignored(SIGINT));
  EXPECT_FALSE(is_ignored(SIGTERM));
}

TEST_F(SignalsThatEndAJob, TheSameOneAtOnceIsOneRequest) {
  // On a busy machine the second one may come too late to be the same: all are sent again then.
  const std::vector<int> all{SIGTERM, SIGINT, SIGQUIT};
  EXPECT_TRUE(test::eventually([&] {
    seen_.clear();
    for (const int number : all) {
      get(number);
      get(number);
    }
    return seen_ == all;
  }));
}

TEST_F(SignalsThatEndAJob, TheSameOneLaterIsAnother) {
  const TimePoint start = Clock::now();
  get(SIGINT);
  EXPECT_TRUE(test::eventually([&] {
    get(SIGINT);
    return seen_.size() == 2;
  }));
  EXPECT_GE(Clock::now() - start, Signals::kOneRequest);
}

// An endless row of them is no single request.
TEST_F(SignalsThatEndAJob, OnlyTheFirstOfARowBeginsTheTime) {
  EXPECT_TRUE(test::eventually([&] {
    get(SIGTERM);
    return seen_.size() == 4;
  }));
}

TEST_F(SignalsThatEndAJob, OneThatFollowsARequestOfAnotherKindCounts) {
  signals_.request(SIGTERM);
  get(SIGTERM);
  EXPECT_EQ(seen_, (std::vector<int>{SIGTERM, SIGTERM}));
}

// The signal that the caller passes on is not counted, and what a person sends then is.
TEST_F(SignalsThatEndAJob, AfterTheCallersOwnADifferentOneCounts) {
  signals_.share_with_caller();
  get(SIGTERM);
  get(SIGTERM);
  get(SIGINT);
  EXPECT_EQ(seen_, (std::vector<int>{SIGTERM, SIGINT}));
}

}  // namespace
}  // namespace hvd::driver
