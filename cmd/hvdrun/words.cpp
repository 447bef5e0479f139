#include "cmd/hvdrun/words.h"

#include <algorithm>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {
namespace {

struct Missing {
  std::string_view flag;
  std::string_view what;
};

constexpr std::string_view kMpi = "launching through MPI is";
constexpr std::string_view kJsrun = "launching through jsrun (LSF) is";

// Horovod's flags for what hvd cannot do yet. To take one silently would be a lie.
constexpr std::array kMissing{
    Missing{"--mpi", kMpi},
    Missing{"--mpi-args", kMpi},
    Missing{"--binding-args", kMpi},
    Missing{"--jsrun", kJsrun},
};

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<std::string> all_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* const option : app.get_options()) {
    for (const auto& name : option->get_lnames()) words.push_back("--" + name);
    for (const auto& name : option->get_fnames()) words.push_back("--" + name);
  }
  for (const Alias& alias : kAliases) words.emplace_back(alias.word);
  return words;
}

// A word as it was typed, taken apart: "-np=4" is {"--num-proc", "4"}.
struct Word {
  std::string flag;
  std::optional<std::string> value;
};

Word take_apart(const std::string& word) {
  const auto equals = word.find('=');
  Word result{word.substr(0, equals), std::nullopt};
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

Result<SplitWords> split_words(const CLI::App& app, const std::vector<std::string>& words) {
  SplitWords result;
  std::size_t at = 0;
  for (; at < words.size(); ++at) {
    const std::string& typed = words[at];
    if (typed.size() < 2 || typed[0] != '-') break;
    if (typed == "--") {
      ++at;
      break;
    }
    const std::string shown = typed.substr(0, typed.find('='));
    for (const Missing& missing : kMissing) {
      if (missing.flag == shown)
        return usage(cat(shown, ": ", missing.what, " not in this version"));
    }
    const Word word = take_apart(typed);
    const CLI::Option* const option = app.get_option_no_throw(word.flag);
    if (option == nullptr || !word.flag.starts_with("--")) {
      const auto near = nearest(shown, all_words(app));
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
    } else if (at + 1 < words.size()) {
      value = words[++at];
    } else {
      return usage(cat(shown, ": needs a value"));
    }
    const Knob* const setting = find_setting_by_flag(std::string_view(word.flag).substr(2));
    if (!word.value && setting != nullptr && is_pair(*setting)) {
      if (at + 1 == words.size()) return usage(cat(shown, ": needs two values, as in 10 100"));
      value = cat(value, " ", words[++at]);
    }
    if (value.empty()) return usage(cat(shown, ": needs a value that is not empty"));
    result.options.push_back(cat(word.flag, "=", value));
  }
  result.command.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
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
