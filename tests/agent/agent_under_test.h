// A real hvd-agent over a real socket pair, with the test as its driver. When it goes out of scope
// the agent and everything that it started are ended, and a leftover fails the test.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/frame.h"
#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "tests/support/process.h"

namespace hvd::test {

// All that was heard of one worker.
struct Heard {
  pid_t pid = 0;
  std::optional<agent_link::LaunchFailed> failed;
  std::optional<agent_link::Exited> exited;
  std::string out;
  std::string err;
  bool out_closed = false;
  bool err_closed = false;
  int initialised = 0;
  int done = 0;
  std::vector<agent_link::Kind> order;  // what came, in which order

  bool over() const { return failed || (exited && out_closed && err_closed); }
};

class AgentUnderTest {
 public:
  enum class Greeting { hello, none };
  explicit AgentUnderTest(Greeting greeting = Greeting::hello);
  ~AgentUnderTest();
  AgentUnderTest(const AgentUnderTest&) = delete;
  AgentUnderTest& operator=(const AgentUnderTest&) = delete;

  static constexpr const char* kMark = "HVD_AGENT_TEST";
  const std::string& mark() const { return mark_; }
  pid_t pid() const { return pid_; }
  const TemporaryDirectory& directory() const { return directory_; }

  void send(const std::string& bytes);
  // A launch as most tests want it: PATH, the mark, the temporary directory.
  agent_link::Launch launch_of(agent_link::Incarnation incarnation,
                               std::vector<std::string> command) const;
  void launch(agent_link::Incarnation incarnation, std::vector<std::string> command);
  // The program of test_worker.cpp in one of its modes.
  void launch_mode(agent_link::Incarnation incarnation, std::vector<std::string> mode);

  // Takes in frames until `condition` holds. False, and a failed test, if it does not in time or
  // the agent closes the link before.
  bool until(const std::function<bool()>& condition);
  bool until_over(agent_link::Incarnation incarnation);
  // Until the agent has closed the link, with everything that it says before.
  void until_closed();
  Heard& of(agent_link::Incarnation incarnation) { return heard_[incarnation]; }

  // The agent's own end: its exit code, or -signal.
  int wait_for_exit();
  void close_link() { link_.reset(); }
  int link() const { return link_.get(); }

  bool gives_credit = true;
  std::optional<agent_link::Ready> ready;
  std::vector<std::string> problems;
  std::vector<std::uint64_t> acks;
  bool bye = false;
  bool closed = false;

 private:
  Status take_in(TimePoint deadline);
  void handle(const Frame& frame);

  std::string mark_;
  TemporaryDirectory directory_;
  pid_t pid_ = -1;
  std::optional<int> exit_;
  UniqueFd link_;
  FrameDecoder decoder_;
  std::map<agent_link::Incarnation, Heard> heard_;
};

}  // namespace hvd::test
