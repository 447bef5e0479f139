#include "cmd/hvdrun/arguments.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvdrun/foreign_flags.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {
namespace {

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// All that a mistyped flag may have meant.
std::vector<std::string> all_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_group().empty()) continue;  // not for people
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (const auto& name : option->get_fnames()) names.push_back("--" + name);
  }
  for (const Alias& alias : aliases()) names.push_back(alias.name);
  return names;
}

// An argument in its parts: "-np=4" is {"--num-proc", "4"}.
struct Argument {
  std::string flag;
  std::optional<std::string> value;
};

Argument parse_argument(const std::string& typed) {
  if (typed.starts_with("-H") && typed.size() > 2 && typed[2] != '=') {
    return {"--hosts", typed.substr(2)};
  }

  const auto equals = typed.find('=');
  Argument result{typed.substr(0, equals), std::nullopt};
  if (equals != std::string::npos) result.value = typed.substr(equals + 1);
  for (const Alias& alias : aliases()) {
    if (alias.name == result.flag) result.flag = alias.flag;
  }
  return result;
}

// The option of `flag`; the error says what the person may have meant by `shown`, with this value
// if it takes one.
Result<const CLI::Option*> find_option(const CLI::App& app, const std::string& flag,
                                       const std::string& shown, std::string_view value) {
  if (const auto answer = answer_to_foreign_flag(shown, value)) return usage(*answer);
  const CLI::Option* const option = app.get_option_no_throw(flag);
  if (option != nullptr && flag.starts_with("--")) return option;
  const auto near = nearest(shown, all_names(app));
  return usage(cat("unknown option ", shown, near ? cat("; did you mean ", *near, "?") : "",
                   " (see hvdrun --help)"));
}

// "127.0.0.1:0", "[::1]:80", "127.0.0.1"; and "localhost:80", which is a mistake, but no program.
bool looks_like_address(const std::string& word) {
  const auto colon = word.rfind(':');
  const bool has_port = colon != std::string::npos &&
                        parse_number<std::uint32_t>(std::string_view(word).substr(colon + 1));
  return has_port || is_ip_address(word);
}

// The value of `argument`, which stands in it or in the arguments that follow; `at` is then moved
// to the last of these.
Result<std::string> take_value(const Argument& argument, const std::string& shown,
                               const std::vector<std::string>& arguments, std::size_t& at) {
  const Knob* const setting = find_setting_by_flag(std::string_view(argument.flag).substr(2));
  const auto usual = setting != nullptr ? value_without_one(*setting) : std::nullopt;
  const bool is_followed = at + 1 < arguments.size() && looks_like_address(arguments[at + 1]);
  if (usual && !argument.value && !is_followed) return *usual;

  std::string value;
  if (argument.value) {
    value = *argument.value;
  } else if (at + 1 < arguments.size()) {
    value = arguments[++at];
  } else {
    return usage(cat(shown, ": needs a value"));
  }

  if (!argument.value && setting != nullptr && is_pair(*setting)) {
    if (at + 1 == arguments.size()) return usage(cat(shown, ": needs two values, as in 10 100"));
    value = cat(value, " ", arguments[++at]);
  }
  if (value.empty()) return usage(cat(shown, ": needs a value that is not empty"));
  return value;
}

}  // namespace

const std::vector<Alias>& aliases() {
  static const std::vector<Alias> all = [] {
    std::vector<Alias> made{{"-cb", "--check-build"},
                            {"-v", "--version"},
                            {"-h", "--help"},
                            {"--log-without-timestamp", "--no-log-with-timestamp"},
                            {"--log-hide-timestamp", "--no-log-with-timestamp"},
                            {"--no-log-hide-timestamp", "--log-with-timestamp"}};
    for (const Knob* const setting : all_settings()) {
      for (const auto& alias : knob_aliases(*setting)) {
        made.push_back({alias.starts_with('-') ? alias : "--" + alias, cat("--", setting->flag)});
      }
    }
    return made;
  }();
  return all;
}

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
    const Argument argument = parse_argument(typed);
    const bool is_followed = at + 1 < arguments.size() && !arguments[at + 1].starts_with('-');
    const std::string value = argument.value.value_or(is_followed ? arguments[at + 1] : "");
    const auto option = find_option(app, argument.flag, shown, value);
    if (!option.ok()) return option.status();

    if (takes_value(**option)) {
      auto taken = take_value(argument, shown, arguments, at);
      if (!taken.ok()) return taken.status();
      result.options.push_back(cat(argument.flag, "=", *taken));
    } else if (argument.value) {
      return usage(cat(shown, ": takes no value, but was given '", *argument.value, "'"));
    } else {
      result.options.push_back(argument.flag);
    }
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
