#include "cmd/hvd-agent/checker.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/socket.h"
#include "cmd/hvd-agent/launch.h"
#include "cmd/hvd-agent/program.h"

namespace hvd::agent {
namespace {

using agent_link::Checked;

Checked failed(Checked::Step step, const LaunchError& error) {
  return {step, error.error_number, error.message};
}

// In the new process, which may change its directory and wait.
Checked take_the_steps(const agent_link::Check& check) {
  if (const auto error = change_directory(check.working_directory)) {
    return failed(Checked::Step::change_directory, *error);
  }
  std::optional<std::string_view> search_path;
  if (!check.search_path.empty()) search_path = check.search_path;
  const auto found = find_program(check.program, search_path, check.working_directory);
  if (found.error) return failed(Checked::Step::find_program, *found.error);
  return {};
}

}  // namespace

void Checker::check(agent_link::Check check) {
  waiting_.push_back(std::move(check));
  if (waiting_.size() == 1) begin_next();
}

void Checker::begin_next() {
  while (!waiting_.empty() && !pipe_) {
    const Status begun = begin(waiting_.front());
    if (begun.ok()) return;
    const int error_number = begun.code() == Code::invalid_argument ? EINVAL : EAGAIN;
    waiting_.pop_front();
    answer_({Checked::Step::find_program, error_number, begun.message()});
  }
}

Status Checker::begin(const agent_link::Check& check) {
  WorkerStart start;
  start.command = {check.program};
  start.working_directory = check.working_directory;
  HVD_RETURN_IF_ERROR(agent::check(start));

  auto pipe = make_pipe();
  HVD_RETURN_IF_ERROR(pipe.status());
  auto& [read_end, write_end] = *pipe;
  HVD_RETURN_IF_ERROR(set_nonblocking(read_end.get(), true));
  auto watch = loop_.watch(read_end.get(), EPOLLIN, [this](std::uint32_t) { on_readable(); });
  HVD_RETURN_IF_ERROR(watch.status());

  const pid_t agent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Status::from_errno("start the process that looks for the program", errno);
  if (child == 0) {
    ::prctl(PR_SET_NAME, "hvd-check");
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It may hang on a dead file system, and must not keep the link open then.
    close_all_but({write_end.get()});
    if (::getppid() != agent) ::_exit(1);
    const Checked checked = take_the_steps(check);
    std::string bytes(1, static_cast<char>(checked.failed));
    bytes += encode(LaunchError{checked.error_number, checked.message});
    [[maybe_unused]] const ssize_t written = ::write(write_end.get(), bytes.data(), bytes.size());
    ::_exit(0);
  }
  received_.clear();
  pipe_ = std::move(read_end);
  watch_ = std::move(*watch);
  return {};
}

void Checker::on_readable() {
  std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const ssize_t got = ::read(pipe_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got > 0) {
    received_.append(buffer.data(), static_cast<std::size_t>(got));
    return;
  }
  if (received_.empty()) {
    return finish({Checked::Step::find_program, ECHILD,
                   "the process that looked for the program was killed"});
  }
  const auto error = decode_launch_error(std::string_view(received_).substr(1));
  finish(failed(static_cast<Checked::Step>(received_.front()), error));
}

void Checker::finish(const Checked& checked) {
  watch_.end();
  pipe_.reset();
  waiting_.pop_front();
  answer_(checked);
  begin_next();
}

}  // namespace hvd::agent
