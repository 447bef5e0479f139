#include "driver/agents/agent_process.h"

#include <csignal>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::driver {
Result<AgentConnection> AgentProcess::start(const std::string& path) {
  auto pair = socket_pair();
  if (!pair) return pair.status();

  std::vector<std::string> command{path};
  const int theirs = pair->second.get();
  auto started = spawn_in_session(command, {.input = theirs, .output = theirs});
  if (!started.ok()) return started.status();
  const pid_t pid = started->pid();

  auto watch = watch_child(pid);
  const bool watched = watch.ok();
  UniqueFd ended = watched ? std::move(*watch) : UniqueFd();
  AgentConnection connection;
  connection.link = std::move(pair->first);
  connection.handle.reset(new AgentProcess(*std::move(started), std::move(ended)));
  if (!watched) return watch.status().with_context(cat("watch the agent, pid ", pid));
  return connection;
}

void AgentProcess::kill() { agent_.signal(SIGKILL); }

std::string AgentProcess::reap() { return end_text(agent_.wait()); }

}  // namespace hvd::driver
