// Arguments of a command line, brought into the form that CLI11 takes: Horovod's spellings are
// rewritten, each option and its value are one argument, and the command is split off.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace hvd::cli {

struct Alias {
  std::string_view name;
  std::string_view flag;
};

// CLI11 does not support options of several letters behind one dash, so they are rewritten first.
inline constexpr std::array kAliases{
    Alias{"-np", "--num-proc"},
    Alias{"-H", "--hosts"},
    Alias{"-hostfile", "--hostfile"},
    Alias{"-wd", "--working-directory"},
    Alias{"--min-num-proc", "--min-np"},
    Alias{"--max_restarts", "--max-restarts"},
    Alias{"--local_ranks_filter", "--local-ranks-filter"},
    Alias{"--max-num-proc", "--max-np"},
    Alias{"-p", "--ssh-port"},
    Alias{"-i", "--ssh-identity-file"},
    Alias{"--network-interfaces", "--network-interface"},
    Alias{"-prefix-timestamp", "--prefix-output-with-timestamp"},
    Alias{"-cb", "--check-build"},
    Alias{"-v", "--version"},
    Alias{"-h", "--help"},
    Alias{"--log-without-timestamp", "--no-log-with-timestamp"},
    Alias{"--log-hide-timestamp", "--no-log-with-timestamp"},
    Alias{"--no-log-hide-timestamp", "--log-with-timestamp"},
};

// An error of usage.
Status usage(std::string message);

struct SplitArguments {
  std::vector<std::string> options;  // each "--flag" or "--flag=value"
  std::vector<std::string> command;
};

// Finds where the options of `app` end. Errors name the flag as it was typed.
Result<SplitArguments> split_arguments(const CLI::App& app,
                                       const std::vector<std::string>& arguments);
Status parse_options(CLI::App& app, std::vector<std::string> options);

}  // namespace hvd::cli
