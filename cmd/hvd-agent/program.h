// Where a worker would be started and with which file: the steps that a launch takes before it
// executes, so that a check (checker.h) takes the very same. They are for a process that may change
// its working directory, and that may wait for a slow file system: never the agent itself.
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
// For a pipe, which takes the whole at once, and back again.
std::string encode(const LaunchError& error);
LaunchError decode_launch_error(std::string_view bytes);

// The value of NAME in a list of NAME=VALUE.
std::optional<std::string_view> variable(const std::vector<std::string>& environment,
                                         std::string_view name);

// Adds what this process was given under these names, unless `environment` has them. Only what is
// asked for by name: the rest of the agent's environment is no business of workers.
void add_host_variables(const std::vector<std::string>& names,
                        std::vector<std::string>& environment);

// Nothing if that went well; so it does for an empty one, where one stays.
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

// Why a file could not be executed, in words that help.
LaunchError cannot_start(const std::string& path, int error_number, const std::string& directory);

}  // namespace hvd::agent
