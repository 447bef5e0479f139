#include <array>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/ssh/host_connection.h"

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

  const int theirs = pair->second.get();
  auto started =
      spawn_in_session({"/bin/sh", "-c", "exec " + command},
                       {.input = theirs, .output = theirs, .errors = their_errors.get()});
  if (!started.ok()) return started.status().with_context("start the proxy command");
  std::unique_ptr<Proxy> proxy(new Proxy);
  proxy->command_ = *std::move(started);

  proxy->socket_ = std::move(pair->first);
  HVD_RETURN_IF_ERROR(set_nonblocking(proxy->socket_.get(), true));
  proxy->errors_ = std::move(errors);
  return proxy;
}

Proxy::~Proxy() { command_.signal_group(SIGKILL); }

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
