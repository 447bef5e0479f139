#include "cmd/hvdrun/arguments.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {
namespace {

// In an answer, N stands for the value.
struct ForeignFlag {
  std::string_view flag;
  std::string_view answer;
  bool takes_value = true;
  std::string_view answer_to_word = {};  // to a value that is no number
};

constexpr std::string_view kMpi = "launching through MPI is not in this version";
constexpr std::string_view kJsrun = "launching through jsrun (LSF) is not in this version";

constexpr std::array kOfHorovod{
    ForeignFlag{"--mpi", kMpi, false},
    ForeignFlag{"--mpi-args", kMpi},
    ForeignFlag{"--binding-args", kMpi},
    ForeignFlag{"--jsrun", kJsrun, false},
};

constexpr std::string_view kNoRendezvous = "not needed, since hvdrun holds the rendezvous service";
constexpr std::string_view kNoMaster =
    "not needed, since hvdrun chooses MASTER_ADDR and MASTER_PORT";
constexpr std::string_view kOutput = "--output-filename DIRECTORY";
constexpr std::string_view kNotYet = "not in this version";

constexpr std::array kOfTorchrun{
    ForeignFlag{
        "--nproc-per-node", "-np N, or -H HOST:N", true,
        "-H HOST, without slots: one worker for each GPU, or for each core if there is none"},
    ForeignFlag{"--nnodes",
                "-H HOST:SLOTS,..., or --host-discovery-script PROGRAM with --min-np "
                "and --max-np"},
    ForeignFlag{"--node-rank", "not needed, since hvdrun starts the workers of all hosts in -H"},
    ForeignFlag{"--standalone", kNoRendezvous, false},
    ForeignFlag{"--rdzv-backend", kNoRendezvous},
    ForeignFlag{"--rdzv-endpoint", kNoRendezvous},
    ForeignFlag{"--rdzv-id", kNoRendezvous},
    ForeignFlag{"--rdzv-conf", "--elastic-timeout SECONDS and --start-timeout SECONDS"},
    ForeignFlag{"--master-addr", kNoMaster},
    ForeignFlag{"--master-port", kNoMaster},
    ForeignFlag{"--local-addr", "--advertise-address N"},
    ForeignFlag{"--monitor-interval", "not needed, since hvdrun learns of an exit at once"},
    ForeignFlag{"--start-method", "not needed, since a worker is a program of its own"},
    ForeignFlag{"--role", "not needed, since all workers are of one kind"},
    ForeignFlag{"--module", "hvdrun [options] python -m N"},
    ForeignFlag{"-m", "hvdrun [options] python -m N"},
    ForeignFlag{"--no-python", "not needed, since hvdrun runs any program", false},
    ForeignFlag{"--run-path", "hvdrun [options] python N"},
    ForeignFlag{"--log-dir", "--output-filename N"},
    ForeignFlag{"--redirects", kOutput},
    ForeignFlag{"-r", kOutput},
    ForeignFlag{"--tee", kOutput},
    ForeignFlag{"-t", kOutput},
    ForeignFlag{"--log-line-prefix-template", "--tag-output and --prefix-output-with-timestamp"},
    ForeignFlag{"--duplicate-stdout-filters", kNotYet},
    ForeignFlag{"--duplicate-stderr-filters", kNotYet},
    ForeignFlag{"--event-log-handler", kNotYet},
    ForeignFlag{"--logs-specs", kNotYet},
    ForeignFlag{"--signals-to-handle",
                "not needed, since hvdrun handles SIGINT, SIGTERM and SIGHUP"},
    ForeignFlag{"--shutdown-timeout", "--grace N"},
    ForeignFlag{"--numa-binding", "--bind numa, or --bind cores"},
    ForeignFlag{"--virtual-local-rank", kNotYet, false},
};

std::string fill_in(std::string_view answer, std::string_view value) {
  std::string text;
  for (std::size_t at = 0; at < answer.size(); ++at) {
    const bool begins = at == 0 || answer[at - 1] == ' ' || answer[at - 1] == ':';
    const bool ends = at + 1 == answer.size() || answer[at + 1] == ',';
    if (answer[at] == 'N' && begins && ends && !value.empty()) {
      text += value;
    } else {
      text += answer[at];
    }
  }
  return text;
}

template <std::size_t Count>
std::optional<std::string> find_answer(const std::array<ForeignFlag, Count>& flags,
                                       std::string_view typed, std::string_view value,
                                       std::string_view owner) {
  // torchrun takes both.
  std::string flag(typed);
  std::replace(flag.begin(), flag.end(), '_', '-');
  const auto* const found = std::find_if(flags.begin(), flags.end(),
                                         [&](const ForeignFlag& one) { return one.flag == flag; });
  if (found == flags.end()) return std::nullopt;
  if (!found->takes_value) value = {};
  const bool is_word = !value.empty() && !parse_number<int>(value);
  const auto answer =
      is_word && !found->answer_to_word.empty() ? found->answer_to_word : found->answer;
  return cat(typed, value.empty() ? "" : " ", value, ": ", fill_in(answer, value), owner);
}

// Flags of Horovod and torchrun that hvdrun does not have, and what it has in their place. To
// ignore one would promise what does not happen.
//
// `flag` as it was typed, without a value, such as "--nproc_per_node". `value`: what was given with
// it; empty if nothing was. nullopt if neither Horovod nor torchrun has such a flag.
std::optional<std::string> answer_to_foreign_flag(std::string_view flag, std::string_view value) {
  if (auto answer = find_answer(kOfHorovod, flag, "", "")) return answer;
  return find_answer(kOfTorchrun, flag, value, " (a flag of torchrun)");
}

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
