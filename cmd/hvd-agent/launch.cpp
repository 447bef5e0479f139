#include "cmd/hvd-agent/launch.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/protocol/worker_link.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

// The worker's descriptor gets the lowest free number from here on: scripts use small ones for
// their own files, and select() wants numbers under 1,024.
constexpr int kWorkerDescriptor = 100;
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

struct Trouble {
  int error_number;
  std::string message;
};

Trouble trouble(int error_number, std::string_view what, std::string_view hint = {}) {
  std::string message = Status::from_errno(what, error_number).message();
  if (!hint.empty()) message += cat(" (", hint, ")");
  return {error_number, std::move(message)};
}

std::optional<std::string_view> variable(const std::vector<std::string>& environment,
                                         std::string_view name) {
  for (const auto& entry : environment) {
    const std::string_view text = entry;
    if (text.starts_with(name) && text.substr(name.size()).starts_with('=')) {
      return text.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Why a program that was found could not be executed, in words that help.
std::string_view hint_for(const std::string& path, int error_number) {
  struct stat file {};
  const bool exists = ::stat(path.c_str(), &file) == 0;
  if (error_number == ENOENT && exists) {
    return "it is there, but the interpreter or loader that it names is not: see its first line";
  }
  if (error_number == EACCES && exists && S_ISDIR(file.st_mode)) return "it is a directory";
  if (error_number == EACCES && exists && (file.st_mode & 0111) == 0) {
    return "it is not executable: chmod +x would make it so";
  }
  if (error_number == ENOEXEC) {
    return "it is no program for this machine; a script needs a first line such as #!/bin/sh";
  }
  if (error_number == E2BIG) return "arguments and environment together are too long";
  return {};
}

// Replaces this process, or says why not.
Trouble execute(const WorkerStart& start, const std::vector<std::string>& environment) {
  const std::string& program = start.command.front();
  const auto arguments = pointers(start.command);
  const auto variables = pointers(environment);
  const auto failed = [&](const std::string& path, int error_number) {
    const std::string place =
        start.working_directory.empty() ? "" : cat(" in ", start.working_directory);
    return trouble(error_number, cat("start ", shell_quote(path), place),
                   hint_for(path, error_number));
  };
  if (program.find('/') != std::string::npos) {
    ::execve(program.c_str(), arguments.data(), variables.data());
    return failed(program, errno);
  }
  const std::string_view path = variable(environment, "PATH").value_or(kDefaultPath);
  std::optional<Trouble> forbidden;
  // An empty element of PATH is the working directory; split() gives none at all for an empty text.
  for (const auto& folder : path.empty() ? std::vector<std::string>{""} : split(path, ':')) {
    const std::string candidate = cat(folder.empty() ? "." : folder, "/", program);
    ::execve(candidate.c_str(), arguments.data(), variables.data());
    const int error_number = errno;
    const bool is_there = ::access(candidate.c_str(), F_OK) == 0;
    if (error_number == EACCES) {
      if (is_there && !forbidden) forbidden = failed(candidate, error_number);
    } else if (is_there || (error_number != ENOENT && error_number != ENOTDIR)) {
      return failed(candidate, error_number);
    }
  }
  if (forbidden) return *forbidden;
  const bool beside = ::access(program.c_str(), X_OK) == 0;
  return trouble(ENOENT, cat("find ", shell_quote(program), " in PATH (", path, ")"),
                 beside ? cat("./", program, " is in the working directory: is that the one?")
                        : std::string());
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

// Runs in the new process.
Trouble become_worker(const WorkerStart& start, pid_t parent) {
  ::setsid();
  ::prctl(PR_SET_NAME, "hvd-worker");
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return trouble(errno, "tie the worker to its agent");
  if (::getppid() != parent) return trouble(ECANCELED, "the agent has ended");

  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return trouble(errno, "open /dev/null");
  int descriptor = ::fcntl(start.socket.get(), F_DUPFD, kWorkerDescriptor);
  if (descriptor < 0) descriptor = ::fcntl(start.socket.get(), F_DUPFD, 3);
  if (descriptor < 0 || ::dup2(null, STDIN_FILENO) < 0 ||
      ::dup2(start.standard_output.get(), STDOUT_FILENO) < 0 ||
      ::dup2(start.standard_error.get(), STDERR_FILENO) < 0) {
    return trouble(errno, "give the worker its descriptors");
  }

  std::vector<std::string> environment;
  const std::string prefix = cat(worker_link::kDescriptorVariable, "=");
  for (const auto& entry : start.environment) {
    if (!entry.starts_with(prefix)) environment.push_back(entry);
  }
  environment.push_back(prefix + std::to_string(descriptor));

  if (!start.working_directory.empty() && ::chdir(start.working_directory.c_str()) != 0) {
    return trouble(errno, cat("change to the working directory ", start.working_directory));
  }
  ::setrlimit(RLIMIT_NOFILE, &start.open_files);
  reset_signals();
  return execute(start, environment);
}

}  // namespace

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
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::from_errno("make a pipe", errno);
  StartedProcess started;
  started.trouble = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  const pid_t parent = ::getpid();
  started.pid = ::fork();
  if (started.pid < 0) return Status::from_errno("fork the worker", errno);
  if (started.pid > 0) return started;

  const Trouble why = become_worker(start, parent);
  std::string bytes(sizeof(int), '\0');
  std::memcpy(bytes.data(), &why.error_number, sizeof(int));
  bytes += why.message.substr(0, 4000);  // a pipe takes this at once
  [[maybe_unused]] const ssize_t written = ::write(write_end.get(), bytes.data(), bytes.size());
  ::_exit(127);
}

LaunchTrouble parse_trouble(std::string_view bytes) {
  LaunchTrouble parsed;
  if (bytes.size() >= sizeof(int)) {
    std::memcpy(&parsed.error_number, bytes.data(), sizeof(int));
    parsed.message = bytes.substr(sizeof(int));
  }
  return parsed;
}

}  // namespace hvd::agent
