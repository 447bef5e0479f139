// SIGTERM around the end of elastic::run(). The test plays the agent.
#include "worker/elastic/leave_watch.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <unistd.h>

#include "base/protocol/worker_link.h"
#include "base/socket.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::worker {
namespace {

// A process ends when its agent is gone, so the agent's end is never closed.
AgentChannel& open_channel() {
  auto ends = socket_pair();
  const worker_link::Welcome welcome("job", Token::random());
  const auto until = Clock::now() + test::kGenerous;
  if (!ends.ok() || !send_all(ends->first.release(), welcome.encode(), until).ok()) ::_exit(2);
  auto channel = AgentChannel::open(cat(ends->second.release()), "");
  if (!channel.ok()) ::_exit(2);
  return **channel;
}

bool an_event_is_unread() {
  for (const auto& info : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream lines(info.path());
    for (std::string word; lines >> word;) {
      std::uint64_t count = 0;
      if (word == "eventfd-count:" && lines >> std::hex >> count && count != 0) return true;
    }
  }
  return false;
}

// While the watch asks whether the first signal is one of the agent's, which takes it a while, the
// second one comes, and the run ends. Only a very busy machine leaves the watch time for both.
void end_a_run_with_an_unread_signal() {
  AgentChannel& agent = open_channel();
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::optional<LeaveWatch> watch(agent);
    ::raise(SIGTERM);
    while (an_event_is_unread()) ::usleep(100);
    ::raise(SIGTERM);
    watch.reset();
  }
  ::_exit(0);
}

// In a program of their own, which has no events and threads of other tests.
class LeaveWatchAtTheEnd : public testing::Test {
 protected:
  LeaveWatchAtTheEnd() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~LeaveWatchAtTheEnd() override { GTEST_FLAG_SET(death_test_style, "fast"); }
};

TEST_F(LeaveWatchAtTheEnd, ASignalThatIsUnreadAtTheEndOfTheRunEndsTheProgram) {
  EXPECT_EXIT(end_a_run_with_an_unread_signal(), testing::KilledBySignal(SIGTERM), "");
}

void set_a_handler_during_a_run() {
  {
    const LeaveWatch watch(open_channel());
    std::signal(SIGTERM, [](int) { ::_exit(3); });
  }
  ::raise(SIGTERM);
}

TEST_F(LeaveWatchAtTheEnd, AHandlerThatTheProgramSetsDuringTheRunStays) {
  EXPECT_EXIT(set_a_handler_during_a_run(), testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace hvd::worker
