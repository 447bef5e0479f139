#include "driver/agents/agent_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <spawn.h>
#include <sys/wait.h>
#include <utility>

#include "base/descriptors.h"
#include "base/socket.h"
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

}  // namespace

Result<AgentConnection> AgentProcess::start(const std::string& path, bool patient) {
  auto pair = socket_pair();
  if (!pair) return pair.status();

  SpawnPlan plan;
  ::posix_spawn_file_actions_adddup2(&plan.actions, pair->second.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&plan.actions, pair->second.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&plan.actions, STDERR_FILENO + 1);
  sigset_t every;
  sigset_t none;
  sigfillset(&every);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&plan.attributes, &every);
  ::posix_spawnattr_setsigmask(&plan.attributes, &none);
  ::posix_spawnattr_setflags(&plan.attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  std::string name = "hvd-agent";
  std::string option = "--no-hello-timeout";
  const std::array<char*, 3> arguments{name.data(), patient ? option.data() : nullptr, nullptr};
  pid_t pid = -1;
  if (const int error = ::posix_spawn(&pid, path.c_str(), &plan.actions, &plan.attributes,
                                      arguments.data(), environ);
      error != 0) {
    return Status::from_errno(cat("start ", path), error);
  }

  auto watch = watch_child(pid);
  const bool watched = watch.ok();
  UniqueFd ended = watched ? std::move(*watch) : UniqueFd();
  AgentConnection connection;
  connection.link = std::move(pair->first);
  connection.handle.reset(new AgentProcess(pid, std::move(ended)));
  if (!watched) return watch.status().with_context(cat("watch the agent, pid ", pid));
  return connection;
}

AgentProcess::~AgentProcess() {
  if (reaped_) return;
  kill();
  ::waitpid(pid_, nullptr, 0);
}

void AgentProcess::kill() {
  if (!reaped_) ::kill(pid_, SIGKILL);
}

std::string AgentProcess::reap() {
  int status = 0;
  reaped_ = true;
  while (::waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) return "ended";
  }
  if (WIFSIGNALED(status)) return exit_text(0, WTERMSIG(status), WCOREDUMP(status));
  return exit_text(WEXITSTATUS(status), 0, false);
}

}  // namespace hvd::driver
