#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/pipe.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/ssh/host_connection.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::driver::ssh {

Result<std::unique_ptr<Proxy>> Proxy::start(const std::string& command) {
  auto pair = socket_pair();
  if (!pair.ok()) return pair.status();
  auto pipe = make_pipe();
  HVD_RETURN_IF_ERROR(pipe.status());
  auto& [errors, their_errors] = *pipe;
  HVD_RETURN_IF_ERROR(set_nonblocking(errors.get(), true));
  // Once the session is established its standard error is read no more. Output that does not fit
  // into the pipe is lost then, rather than blocking the command.
  HVD_RETURN_IF_ERROR(set_nonblocking(their_errors.get(), true));

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pair->second.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, pair->second.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, their_errors.get(), STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t every;
  sigset_t none;
  sigfillset(&every);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&attributes, &every);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  // In a session of its own it has no terminal to ask questions on, and Ctrl-C does not reach it.
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  std::string sh = "sh";
  std::string option = "-c";
  std::string script = "exec " + command;
  const std::array<char*, 4> arguments{sh.data(), option.data(), script.data(), nullptr};
  std::unique_ptr<Proxy> proxy(new Proxy);
  const int error =
      ::posix_spawn(&proxy->pid_, "/bin/sh", &actions, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    proxy->pid_ = -1;
    return Status::from_errno("start the proxy command", error);
  }

  proxy->socket_ = std::move(pair->first);
  HVD_RETURN_IF_ERROR(set_nonblocking(proxy->socket_.get(), true));
  proxy->errors_ = std::move(errors);
  return proxy;
}

Proxy::~Proxy() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string Proxy::complaint() {
  constexpr std::size_t kKept = 500;
  std::array<char, 1024> buffer{};
  ssize_t count = 0;
  while ((count = ::read(errors_.get(), buffer.data(), buffer.size())) > 0) {
    output_.append(buffer.data(), static_cast<std::size_t>(count));
    if (output_.size() > 2 * kKept) output_.erase(0, output_.size() - kKept);
  }
  std::vector<std::string> lines;
  for (const std::string& line : split(output_, '\n')) {
    if (!trim(line).empty()) lines.emplace_back(trim(line));
  }
  return join(lines, "; ");
}

}  // namespace hvd::driver::ssh
