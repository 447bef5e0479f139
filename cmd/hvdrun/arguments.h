// Arguments of a command line, brought into the form that CLI11 takes: Horovod's spellings are
// rewritten, each option and its value are one argument, and the command is split off.
#pragma once

#include <algorithm>
#include <fnmatch.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace hvd::cli {

struct Alias {
  std::string name;
  std::string flag;
};

// CLI11 does not support options of several letters behind one dash, so they are rewritten first.
// The other names of the settings, and those of flags that are no settings.
const std::vector<Alias>& aliases();

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

// Whether the text is like one of the patterns, as in a shell. FNM_CASEFOLD ignores the case.
template <typename Patterns>
bool matches(const std::string& text, const Patterns& patterns, int flags = 0) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), text.c_str(), flags) == 0;
  });
}

}  // namespace hvd::cli
