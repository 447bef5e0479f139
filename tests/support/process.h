// Starts real programs for tests and leaves none behind: a Process that is still running when it
// goes out of scope, also because an assertion failed, is killed with everything that descends from
// it.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "base/descriptors.h"

namespace hvd::test {

inline constexpr std::chrono::seconds kGenerous{
    60};  // the deadline of waits that normally end at once

struct ProcessOptions {
  // Added to the test's own; "" removes a name.
  std::map<std::string, std::string> environment = {};
  std::filesystem::path working_directory = {};  // empty: the test's own
  bool close_stdin = false;                      // else /dev/null
};

struct ExitStatus {
  int code = -1;    // exit code, or 128 + signal as a shell says it
  int signal = 0;   // the signal that killed it, or 0
  std::string out;  // all of stdout
  std::string err;  // all of stderr
};

// kill() for one process. The test fails for a number that means several, such as 0 or -1, which is
// what a search that has found nothing returns.
int kill_one(pid_t pid, int signal_number);

class Process {
 public:
  // `command[0]` is searched in PATH. Throws std::runtime_error if it cannot be started.
  explicit Process(const std::vector<std::string>& command, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Blocks until `text` has appeared on stdout (or stderr), behind the first `after` bytes; false
  // if it ended or the time is up before.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds limit = kGenerous,
                       std::size_t after = 0);
  bool wait_for_error(const std::string& text, std::chrono::milliseconds limit = kGenerous,
                      std::size_t after = 0);
  // Blocks until it has ended. A test whose wait times out fails with the output so far.
  ExitStatus wait(std::chrono::milliseconds limit = kGenerous);
  const std::string& out() const { return status_.out; }
  const std::string& err() const { return status_.err; }

 private:
  bool pump(std::chrono::steady_clock::time_point until);
  bool wait_for_text(const std::string& where, const std::string& text,
                     std::chrono::milliseconds limit, std::size_t after);

  pid_t pid_ = -1;
  bool ended_ = false;
  UniqueFd out_;
  UniqueFd err_;
  ExitStatus status_;
};

// Starts, waits, returns.
ExitStatus run(const std::vector<std::string>& command, const ProcessOptions& options = {},
               std::chrono::milliseconds limit = kGenerous);

// A directory that is removed with all that it holds.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  // Writes a file in it and returns its path.
  std::filesystem::path file(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path& path);

// Pids of all processes with NAME=VALUE in their environment: how a test finds every process of its
// job, also those that made themselves daemons.
std::vector<pid_t> processes_with_variable(const std::string& name, const std::string& value);
// Blocks until no such process is left; false if some are left at the limit.
bool wait_until_gone(const std::string& name, const std::string& value,
                     std::chrono::milliseconds limit = std::chrono::seconds(10));

// Polls `condition` until it holds; false at the limit. For what has no event to wait on, such as
// /proc.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = kGenerous) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// The path of a program of this build: binary("hvdrun").
std::string binary(const std::string& name);

}  // namespace hvd::test
