// The steps of a launch before exec: the working directory and the program's file. A launch and a
// check (checker.h) share them. They change the working directory and may wait for a slow file
// system, so they run in a child process, never in the agent itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::agent {

struct LaunchError {
  int error_number = 0;
  std::string message;
};
LaunchError launch_error(int error_number, std::string_view what, std::string_view hint = {});
// The bytes of an error for a pipe; they fit into one write().
std::string encode(const LaunchError& error);
LaunchError decode_launch_error(std::string_view bytes);

// The value of NAME in a list of NAME=VALUE.
std::optional<std::string_view> variable(const std::vector<std::string>& environment,
                                         std::string_view name);

// Adds this process's variables of these names, unless `environment` has them. The rest of the
// agent's own environment is not passed to workers.
void add_host_variables(const std::vector<std::string>& names,
                        std::vector<std::string>& environment);

// Empty on success. An empty directory means the current one.
std::optional<LaunchError> change_directory(const std::string& directory);

struct FoundProgram {
  std::string path;
  std::optional<LaunchError> error;  // then there is no path
};
// The file that `program` names, seen from the working directory, in which we already are: with a
// slash in it a path, else the first in `search_path` (without one, in the usual folders) that may
// be executed. `directory` is for the text alone.
FoundProgram find_program(const std::string& program, std::optional<std::string_view> search_path,
                          const std::string& directory);

// Why a file could not be executed, with a hint what to do.
LaunchError cannot_start(const std::string& path, int error_number, const std::string& directory);

}  // namespace hvd::agent
