#include "cmd/hvd-agent/launch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/machine/topology.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

// The worker's descriptors get the lowest free numbers from here on: scripts use small ones for
// their own files, and select() wants numbers under 1,024.
constexpr int kWorkerDescriptor = 100;

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Replaces this process, or says why not.
LaunchError execute(const WorkerStart& start, const std::vector<std::string>& environment) {
  const auto found =
      find_program(start.command.front(), variable(environment, "PATH"), start.working_directory);
  if (found.error) return *found.error;
  const auto arguments = pointers(start.command);
  const auto variables = pointers(environment);
  ::execve(found.path.c_str(), arguments.data(), variables.data());
  return cannot_start(found.path, errno, start.working_directory);
}

std::optional<LaunchError> bind_to(const std::vector<int>& processors) {
  if (processors.empty()) return std::nullopt;
  const auto count = static_cast<std::size_t>(processors.back()) + 1;
  cpu_set_t* const set = CPU_ALLOC(count);
  if (set == nullptr) return launch_error(ENOMEM, "bind the worker to processors");
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const int number : processors) CPU_SET_S(static_cast<std::size_t>(number), bytes, set);
  const int result = ::sched_setaffinity(0, bytes, set);
  const int error = errno;
  CPU_FREE(set);
  if (result == 0) return std::nullopt;
  return launch_error(error,
                      cat("bind the worker to the processors ", processors_text(processors)));
}

void reset_signals() {
  // By the kernel's own call: the library's refuses the two that threads use, and an ancestor may
  // have left these ignored, too. All zero is SIG_DFL without flags.
  const std::array<unsigned long, 8> by_default{};
  for (int number = 1; number < NSIG; ++number) {
    ::syscall(SYS_rt_sigaction, number, by_default.data(), nullptr, NSIG / 8);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The number under which the new program finds the descriptor; -1: none is free.
int duplicate_for_worker(const UniqueFd& fd) {
  const int number = ::fcntl(fd.get(), F_DUPFD, kWorkerDescriptor);
  return number >= 0 ? number : ::fcntl(fd.get(), F_DUPFD, 3);
}

// Runs in the new process.
LaunchError become_worker(const WorkerStart& start, pid_t parent) {
  ::setsid();
  ::prctl(PR_SET_NAME, "hvd-worker");
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
    return launch_error(errno, "tie the worker to its agent");
  if (::getppid() != parent) return launch_error(ECANCELED, "the agent has ended");

  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return launch_error(errno, "open /dev/null");
  const int descriptor = start.socket ? duplicate_for_worker(start.socket) : -1;
  if ((start.socket && descriptor < 0) || ::dup2(null, STDIN_FILENO) < 0 ||
      ::dup2(start.standard_output.get(), STDOUT_FILENO) < 0 ||
      ::dup2(start.standard_error.get(), STDERR_FILENO) < 0) {
    return launch_error(errno, "give the worker its descriptors");
  }

  const auto number_for_worker = [&](const UniqueFd& fd) {
    return fd && start.socket ? duplicate_for_worker(fd) : -1;
  };
  const std::array<std::pair<const char*, int>, 3> numbers{{
      {worker_link::kDescriptorVariable, descriptor},
      {worker_link::kLifeLockVariable, number_for_worker(start.life_lock)},
      {worker_link::kStateMemoryVariable, number_for_worker(start.state_memory)},
  }};
  std::vector<std::string> environment = start.environment;
  for (const auto& [name, number] : numbers) {
    const std::string prefix = cat(name, "=");
    std::erase_if(environment, [&](const auto& entry) { return entry.starts_with(prefix); });
    if (number >= 0) environment.push_back(cat(prefix, number));
  }

  if (auto failed = change_directory(start.working_directory)) return *failed;
  ::setrlimit(RLIMIT_NOFILE, &start.open_files);
  if (auto failed = bind_to(start.processors)) return *failed;
  reset_signals();
  return execute(start, environment);
}

}  // namespace

void close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = STDERR_FILENO + 1;
  for (const int fd : kept) {
    const auto number = static_cast<unsigned>(fd);
    if (number > first) close_descriptors(first, number - 1);
    first = number + 1;
  }
  close_descriptors(first);
}

Status check(const WorkerStart& start) {
  const auto wrong = [](std::string message) {
    return Status(Code::invalid_argument, std::move(message));
  };
  const auto has_nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (start.command.empty() || start.command.front().empty()) {
    return wrong("start a worker: there is no program to start");
  }
  for (const auto& word : start.command) {
    if (has_nul(word)) return wrong("start a worker: a word of its command holds a NUL byte");
  }
  for (const auto& entry : start.environment) {
    if (has_nul(entry) || entry.find('=') == std::string::npos || entry.starts_with('=')) {
      // Only the name: the value may be secret.
      return wrong(cat("start a worker: the environment holds \"", entry.substr(0, entry.find('=')),
                       "\", which is not of the form NAME=VALUE or holds a NUL byte"));
    }
  }
  if (has_nul(start.working_directory)) {
    return wrong("start a worker: its working directory holds a NUL byte");
  }
  return {};
}

Result<StartedProcess> start_worker(const WorkerStart& start) {
  auto pipe = make_pipe();
  HVD_RETURN_IF_ERROR(pipe.status());
  StartedProcess started;
  started.error_pipe = std::move(pipe->read_end);
  const pid_t parent = ::getpid();
  started.pid = ::fork();
  if (started.pid < 0) return Status::from_errno("fork the worker", errno);
  if (started.pid > 0) return started;

  const LaunchError why = become_worker(start, parent);
  const std::string bytes = encode(why);
  [[maybe_unused]] const ssize_t written =
      ::write(pipe->write_end.get(), bytes.data(), bytes.size());
  ::_exit(127);
}

}  // namespace hvd::agent
