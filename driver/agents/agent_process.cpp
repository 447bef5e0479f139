#include "driver/agents/agent_process.h"

#include <cerrno>
#include <csignal>
#include <sys/wait.h>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/core/spawn.h"
#include "driver/job/job_io.h"

namespace hvd::driver {
Result<AgentConnection> AgentProcess::start(const std::string& path) {
  auto pair = socket_pair();
  if (!pair) return pair.status();

  std::vector<std::string> command{path};
  const int theirs = pair->second.get();
  const auto started = spawn_in_session(command, {.input = theirs, .output = theirs});
  if (!started.ok()) return started.status();
  const pid_t pid = *started;

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
