#include "cmd/hvdrun/arguments.h"

#include <algorithm>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {
namespace {

struct UnsupportedFlag {
  std::string_view flag;
  std::string_view what;
};

constexpr std::string_view kMpi = "launching through MPI is";
constexpr std::string_view kJsrun = "launching through jsrun (LSF) is";

// Horovod's flags for what hvd cannot do yet. To take one silently would be a lie.
constexpr std::array kUnsupportedFlags{
    UnsupportedFlag{"--mpi", kMpi},
    UnsupportedFlag{"--mpi-args", kMpi},
    UnsupportedFlag{"--binding-args", kMpi},
    UnsupportedFlag{"--jsrun", kJsrun},
};

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<std::string> all_names(const CLI::App& app) {
  std::vector<std::string> arguments;
  for (const CLI::Option* const option : app.get_options()) {
    for (const auto& name : option->get_lnames()) arguments.push_back("--" + name);
    for (const auto& name : option->get_fnames()) arguments.push_back("--" + name);
  }
  for (const Alias& alias : kAliases) arguments.emplace_back(alias.word);
  return arguments;
}

// A word as it was typed, taken apart: "-np=4" is {"--num-proc", "4"}.
struct Argument {
  std::string flag;
  std::optional<std::string> value;
};

Argument parse_argument(const std::string& word) {
  const auto equals = word.find('=');
  Argument result{word.substr(0, equals), std::nullopt};
  if (equals != std::string::npos) result.value = word.substr(equals + 1);
  if (word.starts_with("-H") && word.size() > 2 && word[2] != '=') {
    return {"--hosts", word.substr(2)};
  }
  for (const Alias& alias : kAliases) {
    if (alias.word == result.flag) result.flag = alias.flag;
  }
  return result;
}

}  // namespace

Status usage(std::string message) { return {Code::invalid_argument, std::move(message)}; }

Result<SplitArguments> split_arguments(const CLI::App& app,
                                       const std::vector<std::string>& arguments) {
  SplitArguments result;
  std::size_t at = 0;
  for (; at < arguments.size(); ++at) {
    const std::string& typed = arguments[at];
    if (typed.size() < 2 || typed[0] != '-') break;
    if (typed == "--") {
      ++at;
      break;
    }
    const std::string shown = typed.substr(0, typed.find('='));
    for (const UnsupportedFlag& unsupported : kUnsupportedFlags) {
      if (unsupported.flag == shown)
        return usage(cat(shown, ": ", unsupported.what, " not in this version"));
    }
    const Argument word = parse_argument(typed);
    const CLI::Option* const option = app.get_option_no_throw(word.flag);
    if (option == nullptr || !word.flag.starts_with("--")) {
      const auto near = nearest(shown, all_names(app));
      return usage(cat("unknown option ", shown, near ? cat("; did you mean ", *near, "?") : "",
                       " (hvdrun --help lists all)"));
    }
    if (!takes_value(*option)) {
      if (word.value)
        return usage(cat(shown, ": takes no value, but was given '", *word.value, "'"));
      result.options.push_back(word.flag);
      continue;
    }
    std::string value;
    if (word.value) {
      value = *word.value;
    } else if (at + 1 < arguments.size()) {
      value = arguments[++at];
    } else {
      return usage(cat(shown, ": needs a value"));
    }
    const Knob* const setting = find_setting_by_flag(std::string_view(word.flag).substr(2));
    if (!word.value && setting != nullptr && is_pair(*setting)) {
      if (at + 1 == arguments.size()) return usage(cat(shown, ": needs two values, as in 10 100"));
      value = cat(value, " ", arguments[++at]);
    }
    if (value.empty()) return usage(cat(shown, ": needs a value that is not empty"));
    result.options.push_back(cat(word.flag, "=", value));
  }
  result.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return result;
}

Status parse_options(CLI::App& app, std::vector<std::string> options) {
  std::reverse(options.begin(), options.end());  // the form that CLI11 takes
  try {
    app.parse(std::move(options));
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  }
  return {};
}

}  // namespace hvd::cli
