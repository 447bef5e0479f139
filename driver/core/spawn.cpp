#include "driver/core/spawn.h"

#include <csignal>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "driver/job/job_io.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::driver {
namespace {

// Owns posix_spawn's two objects.
struct SpawnPlan {
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const auto& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));  // NOLINT: exec's form
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<ChildProcess> spawn_in_session(const std::vector<std::string>& command,
                                      const ChildDescriptors& descriptors,
                                      const std::vector<std::string>* environment) {
  SpawnPlan plan;
  ::posix_spawn_file_actions_adddup2(&plan.actions, descriptors.input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&plan.actions, descriptors.output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&plan.actions, descriptors.errors, STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&plan.actions, STDERR_FILENO + 1);

  sigset_t every;
  sigset_t none;
  sigfillset(&every);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&plan.attributes, &every);
  ::posix_spawnattr_setsigmask(&plan.attributes, &none);
  ::posix_spawnattr_setflags(&plan.attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  const auto words = pointers_to(command);
  const auto variables = environment == nullptr ? std::vector<char*>() : pointers_to(*environment);
  return ChildProcess::start([&]() -> Result<pid_t> {
    pid_t pid = -1;
    const int error =
        ::posix_spawnp(&pid, words.front(), &plan.actions, &plan.attributes, words.data(),
                       environment == nullptr ? environ : variables.data());
    if (error != 0) return Status::from_errno(cat("start ", command.front()), error);
    return pid;
  });
}

std::string end_text(const Result<int>& wait_status) {
  if (!wait_status.ok()) return "ended";
  const int status = *wait_status;
  if (WIFSIGNALED(status)) return exit_text(0, WTERMSIG(status), WCOREDUMP(status));
  return exit_text(WEXITSTATUS(status), 0, false);
}

}  // namespace hvd::driver
