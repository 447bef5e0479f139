// A child of this process with an owner: a helper program such as an agent, a proxy command or
// srun. Its owner alone signals and reaps it, so its pid cannot be another process's meanwhile.
//
// Code that kills all other children, such as orphans that this process has adopted, asks for
// children_without_owner(). Safe from any thread; one ChildProcess is for one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/status.h"

namespace hvd {

class ChildProcess {
 public:
  // `spawn` forks and returns the pid of the child, in which it must not return. The child has its
  // owner from the first moment.
  static Result<ChildProcess> start(const std::function<Result<pid_t>()>& spawn);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();  // kills the child and waits for its end

  // -1: there is no child, or it was reaped.
  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // For a child that leads a process group: to all processes of the group.
  void signal_group(int number) const;
  // Blocks until the child has ended, and reaps it. Returns its wait status; an error if there is
  // no child, or if the kernel or other code of this process has reaped it.
  Result<int> wait();
  // Leaves the child to children_without_owner().
  void disown();

 private:
  pid_t pid_ = -1;
};

// The children of this process that no ChildProcess owns. None while a start hangs, since the child
// that it makes could not be told from these.
std::vector<pid_t> children_without_owner();

// ---- their start and their end ----

struct ChildDescriptors {
  int input = 0;
  int output = 1;
  int errors = 2;  // 2: that of this process
};

// Runs `command[0]`, which is looked for in PATH unless it has a '/'. The child has these three
// descriptors and no others, the default effect of every signal, and none blocked. It is in a
// session of its own: Ctrl-C does not reach it, and it has no terminal to ask questions on.
// `environment`: NAME=VALUE; null: that of this process. The error names the command.
Result<ChildProcess> spawn_in_session(const std::vector<std::string>& command,
                                      const ChildDescriptors& descriptors,
                                      const std::vector<std::string>* environment = nullptr);

// "SIGKILL (signal 9)"
std::string signal_text(int signal_number);
// "exited with code 3", "was killed by SIGSEGV (signal 11), core dumped"
std::string end_text(int exit_code, int signal_number, bool core_dumped);
// What ChildProcess::wait() has returned, in these words, or "ended" if nobody knows how.
std::string end_text(const Result<int>& wait_status);

}  // namespace hvd
