// A real hvd-agent over a real socket pair or two pipes, with the test as its driver. When it goes
// out of scope the agent and everything that it started are ended, and a leftover fails the test.
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
#include "base/descriptors.h"
#include "base/frame.h"
#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "tests/support/process.h"

namespace hvd::test {

// All messages about one worker.
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
  int ready = 0;
  int leaves = 0;
  std::vector<std::string> left;  // reasons
  std::vector<std::string> described;
  std::vector<std::uint64_t> committed;  // generations
  std::vector<agent_link::Kind> order;   // what came, in which order

  bool over() const { return failed || (exited && out_closed && err_closed); }
};

// The number that test_worker.cpp prints behind a word: "daemon 123". 0: it has not.
pid_t number_after(const std::string& text, const std::string& word);
// There is no such process, or it has ended and nobody has waited for it.
bool is_gone(pid_t pid);

struct AgentOptions {
  bool greet = true;
  agent_link::Hello hello = {};                         // build and job are filled in
  std::map<std::string, std::string> environment = {};  // of the agent, added to the test's own
  bool pipes = false;                                   // else one socket for both directions
  // A script of sh that ends with `exec "$0"`, as sshd starts programs; empty: none between.
  std::string script = {};
};

class AgentUnderTest {
 public:
  enum class Greeting { hello, none };
  explicit AgentUnderTest(Greeting greeting = Greeting::hello)
      : AgentUnderTest(AgentOptions{.greet = greeting == Greeting::hello}) {}
  explicit AgentUnderTest(AgentOptions options);
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
  // Takes in what has arrived already.
  void take_in_what_is_there();
  // As until(), and the lease is renewed meanwhile.
  bool until_beating(const std::function<bool()>& condition);
  // One heartbeat, which names the newest answer that was heard.
  void beat();
  // Until the agent has closed the link, with everything that it says before.
  void until_closed();
  Heard& of(agent_link::Incarnation incarnation) { return heard_[incarnation]; }

  // The agent's own end: its exit code, or -signal.
  int wait_for_exit();
  void close_link() {
    to_agent_.reset();
    from_agent_.reset();
  }
  void close_to_agent() { to_agent_.reset(); }
  void close_from_agent() { from_agent_.reset(); }
  // Its standard error so far.
  std::string err() const { return read_file(directory_.path() / "agent-stderr"); }

  bool gives_credit = true;
  std::optional<agent_link::Ready> ready;
  std::vector<std::string> problems;
  std::vector<std::uint64_t> acks;
  std::vector<agent_link::Checked> checked;
  std::map<std::uint32_t, agent_link::Probed> probed;
  int host_leaves = 0;
  agent_link::HostLeaves newest_leave;
  int pauses = 0;  // answers to Pause
  int activity_wanted = 0;
  std::map<agent_link::Incarnation, agent_link::WorkerActivity> activities;  // the newest
  std::map<agent_link::Incarnation, std::vector<WorkReading>> work;
  bool bye = false;
  bool closed = false;

 private:
  Status take_in(TimePoint deadline);
  void handle(const Frame& frame);

  std::string mark_;
  TemporaryDirectory directory_;
  pid_t pid_ = -1;
  std::optional<int> exit_;
  UniqueFd to_agent_;
  UniqueFd from_agent_;
  std::uint64_t last_heartbeat_ = 0;
  FrameDecoder decoder_;
  std::map<agent_link::Incarnation, Heard> heard_;
};

}  // namespace hvd::test
