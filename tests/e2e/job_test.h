// Fixture of all tests of whole jobs. They start the real hvdrun, which starts the real agent,
// which starts real workers. Every process of a job inherits a variable that only this test uses,
// so that the fixture can tell at the end that none is left, and make it so.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace hvd::test {

using Words = std::vector<std::string>;

// The text to train on: this repository's licence, which changes less than its docs do.
inline constexpr const char* kText = HVD_SOURCE_DIR "/LICENSE";

class JobTest : public testing::Test {
 public:
  JobTest();
  ~JobTest() override;

 protected:
  void TearDown() override;  // fails the test if a process of a job is left

  // Starts hvdrun with these arguments.
  Process& start(const Words& words, ProcessOptions options = {});
  // Starts it and waits until it has ended.
  ExitStatus run_job(const Words& words, ProcessOptions options = {});
  // `hvdrun -np ranks flags command` ends well, and each rank says "ok <rank>." and nothing else.
  ExitStatus expect_all_ok(int ranks, const Words& command, const Words& flags = {});
  // `command` without hvdrun, likewise: it is a world of one.
  void expect_ok_alone(const Words& command);

  // Sends the signal until the job has said this on its standard error: one that follows the same
  // signal too soon has no effect.
  static void signal_until(Process& job, int number, const std::string& said);

  // Every process that descends from a job of this test, hvdrun itself included.
  std::vector<pid_t> processes() const;
  // Ends it with SIGKILL, as a crash would, and waits for that.
  void crash(Process& process);
  void expect_nobody_left(const std::string& after);

  const std::filesystem::path& directory() const { return directory_.path(); }
  // Writes a file there and returns its path.
  std::string directory_file(const std::string& name, const std::string& content = "") const {
    return directory_.file(name, content);
  }
  const std::string& mark() const { return mark_; }

 private:
  TemporaryDirectory directory_;
  std::string mark_;
  std::vector<std::unique_ptr<Process>> started_;
};

// Pids by rank, from the lines "PID <word> RANK." that the test programs print; blocks until all
// `count` ranks have spoken.
std::map<int, pid_t> wait_for_workers(Process& job, const std::string& word, int count);

// Direct children of a process that run the program with this name (as /proc/PID/comm says it).
std::vector<pid_t> children_named(pid_t parent, const std::string& name);

// Ports of 127.0.0.1 or of all addresses on which these processes listen.
std::set<std::uint16_t> listening_ports(const std::vector<pid_t>& processes);

// The lines of a text, without their ends.
std::vector<std::string> lines_of(const std::string& text);
// The lines that a worker wrote, without the prefix: "[2]<stdout>:".
std::vector<std::string> lines_of_rank(const std::string& text, int rank,
                                       const std::string& stream = "stdout");

}  // namespace hvd::test
