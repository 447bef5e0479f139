#include "cmd/hvd-agent/program.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/status.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
constexpr std::size_t kLongestMessage = 4000;

// 0 if execve() would try, else its error.
int may_execute(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return errno;
  if (!S_ISREG(file.st_mode)) return EACCES;
  return ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

std::string_view hint_for(const std::string& path, int error_number) {
  struct stat file {};
  const bool exists = ::stat(path.c_str(), &file) == 0;
  if (error_number == ENOENT && exists) {
    return "the file exists, but the interpreter or loader that it names does not: see its first "
           "line";
  }
  if (error_number == EACCES && exists && S_ISDIR(file.st_mode)) return "it is a directory";
  if (error_number == EACCES && exists && (file.st_mode & 0111) == 0) {
    return "it is not executable: chmod +x would make it so";
  }
  if (error_number == ENOEXEC) {
    return "not a program for this machine; a script needs a first line such as #!/bin/sh";
  }
  if (error_number == E2BIG) return "arguments and environment together are too long";
  return {};
}

}  // namespace

LaunchError launch_error(int error_number, std::string_view what, std::string_view hint) {
  std::string message = Status::from_errno(what, error_number).message();
  if (!hint.empty()) message += cat(" (", hint, ")");
  return {error_number, std::move(message)};
}

std::string encode(const LaunchError& error) {
  std::string bytes(sizeof(int), '\0');
  std::memcpy(bytes.data(), &error.error_number, sizeof(int));
  return bytes + error.message.substr(0, kLongestMessage);
}

LaunchError decode_launch_error(std::string_view bytes) {
  LaunchError parsed;
  if (bytes.size() >= sizeof(int)) {
    std::memcpy(&parsed.error_number, bytes.data(), sizeof(int));
    parsed.message = bytes.substr(sizeof(int));
  }
  return parsed;
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

void add_host_variables(const std::vector<std::string>& names,
                        std::vector<std::string>& environment) {
  for (const auto& name : names) {
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos)
      continue;
    if (variable(environment, name)) continue;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
    if (const char* const value = std::getenv(name.c_str())) {
      environment.push_back(cat(name, "=", value));
    }
  }
}

std::optional<LaunchError> change_directory(const std::string& directory) {
  if (directory.empty() || ::chdir(directory.c_str()) == 0) return std::nullopt;
  return launch_error(errno, cat("change to the working directory ", directory));
}

LaunchError cannot_start(const std::string& path, int error_number, const std::string& directory) {
  const std::string place = directory.empty() ? "" : cat(" in ", directory);
  return launch_error(error_number, cat("start ", shell_quote(path), place),
                      hint_for(path, error_number));
}

FoundProgram find_program(const std::string& program, std::optional<std::string_view> search_path,
                          const std::string& directory) {
  if (program.find('/') != std::string::npos) {
    if (const int error_number = may_execute(program); error_number != 0) {
      return {{}, cannot_start(program, error_number, directory)};
    }
    return {program, {}};
  }
  const std::string_view path = search_path.value_or(kDefaultPath);
  std::optional<LaunchError> forbidden;
  // An empty element of PATH is the working directory; split() gives none at all for an empty text.
  for (const auto& folder : path.empty() ? std::vector<std::string>{""} : split(path, ':')) {
    std::string candidate = cat(folder.empty() ? "." : folder, "/", program);
    const int error_number = may_execute(candidate);
    if (error_number == 0) return {std::move(candidate), {}};
    // As shells do it: what is there, but not for us to execute, is told only if nothing else is.
    if (!forbidden && ::access(candidate.c_str(), F_OK) == 0) {
      forbidden = cannot_start(candidate, error_number, directory);
    }
  }
  if (forbidden) return {{}, std::move(forbidden)};
  const bool beside = may_execute(program) == 0;
  return {{},
          launch_error(ENOENT, cat("find ", shell_quote(program), " in PATH (", path, ")"),
                       beside ? cat("./", program, " is in the working directory: is that the one?")
                              : std::string())};
}

}  // namespace hvd::agent
