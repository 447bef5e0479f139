#include "cmd/hvdrun/options.h"

#include <memory>
#include <regex>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/subcommands.h"

namespace hvd::cli {
namespace {

std::string_view group_of(const Knob& setting) {
  const auto section = setting.config_key.substr(0, setting.config_key.find('.'));
  if (section == "launch") return "What runs where";
  if (section == "elastic") return "A world that changes";
  if (section == "output") return "Output";
  if (section == "params") return "Reduction";
  if (section == "autotune") return "Autotuning";
  if (section == "timeline") return "Timeline";
  if (section == "ssh") return "Other hosts, through SSH";
  if (section == "network") return "Network";
  if (section == "join") return "Agents that come by themselves (hvdrun agent --join)";
  if (section == "stall_check") return "Stall check";
  if (section == "library_options") return "Libraries";
  return "Logging";
}

std::string placeholder(const Knob& setting) {
  if (!setting.choices.empty()) return join(split(setting.choices, ','), "|");
  switch (setting.type) {
    case KnobType::integer:
      return "N";
    case KnobType::real:
      return "NUMBER";
    case KnobType::log_level:
      return "LEVEL";
    case KnobType::integer_list:
      return "N,N,...";
    default:
      break;
  }
  if (setting.flag == "hosts") return "HOST:SLOTS,...";
  if (setting.flag == "ssh-host-key") return "accept-new|strict|off";
  if (setting.flag == "host-discovery-script") return "PROGRAM";
  if (setting.flag == "blacklist-cooldown-range") return "LOW HIGH";
  if (setting.flag == "network-interface") return "NAME";
  if (setting.flag == "advertise-address") return "ADDRESS";
  if (setting.flag == "join-bind") return "ADDRESS:PORT";
  if (setting.flag == "ssh-config" || setting.flag == "ssh-known-hosts") return "FILE";
  if (setting.flag == "tag-output") return "rank|none";
  return setting.flag == "hostfile" || setting.flag.ends_with("-file") ||
                 setting.flag == "timeline-filename"
             ? "FILE"
             : "DIR";
}

// "(default: 128)", in the flag's unit and sense.
std::string default_shown(const Knob& setting) {
  if (setting.default_text.empty()) return {};
  std::string text(setting.default_text);
  if (setting.type == KnobType::boolean) {
    text = (text == "1") != setting.inverted ? "on" : "off";
  } else if (const auto number = parse_number<double>(text)) {
    text = cat(*number / setting.environment_scale);
  }
  return cat(" (default: ", text, ")");
}

// Shows the one-dash forms beside the long ones.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(44); }

  std::string make_option_name(const CLI::Option* option, bool /*positional*/) const override {
    const std::string& flag = option->get_single_name();
    const Knob* const setting = find_setting_by_flag(flag);
    const bool both = setting != nullptr && setting->type == KnobType::boolean;
    std::string name = cat(both ? "--[no-]" : "--", flag);
    for (const Alias& alias : kAliases) {
      if (!alias.word.starts_with("--") && cat("--", flag) == alias.flag) {
        name = cat(alias.word, ", ", name);
      }
    }
    return flag == "log-with-timestamp" ? "--log-with[out]-timestamp" : name;
  }

  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return "Usage: hvdrun [options] program [arguments]\n"
           "       hvdrun rendezvous --bind ADDRESS:PORT [--token-file FILE] [--legacy-clients]\n"
           "       hvdrun agent --join tls://ADDRESS:PORT [--token-file FILE] [--slots N]\n";
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    return type.empty() || option->get_items_expected_max() == 0 ? "" : " " + type;
  }
};

// The definition of hvdrun's command line; the values are asked of it after parsing.
struct Parser {
  CLI::App app{"hvdrun: runs a program as many workers that train together", "hvdrun"};
  std::map<std::string, CLI::Option*, std::less<>> settings;
  std::string config_file;
  EnvironmentArguments environment;
  bool dry_run = false;
  bool print_env = false;
  bool check_build = false;
  bool version = false;
  bool help = false;

  Parser();
};

Parser::Parser() {
  app.set_help_flag();
  app.formatter(std::make_shared<HelpFormatter>());
  for (const Knob* const setting : all_settings()) {
    CLI::Option* option = nullptr;
    if (setting->type == KnobType::boolean) {
      option = app.add_flag(cat("--", setting->flag, ",!--no-", setting->flag));
    } else {
      option = app.add_option(cat("--", setting->flag));
      option->expected(1)->type_name(placeholder(*setting));
    }
    option->description(std::string(setting->help) + default_shown(*setting))
        ->group(std::string(group_of(*setting)));
    option->multi_option_policy(is_list(*setting) ? CLI::MultiOptionPolicy::TakeAll
                                                  : CLI::MultiOptionPolicy::TakeLast);
    settings[std::string(setting->flag)] = option;
  }
  constexpr const char* kEnvironment = "Environment of the workers";
  const auto list = [&](const char* flag, std::vector<std::string>& into, const char* type,
                        const char* what) {
    app.add_option(flag, into, what)
        ->type_name(type)
        ->group(kEnvironment)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  list("--env", environment.set, "NAME[=VALUE]", "Give the workers this variable; repeatable");
  list("--env-exclude", environment.excluded, "PATTERN",
       "Keep variables such as 'AWS_*' from the workers; repeatable");
  list("--env-include", environment.included, "PATTERN",
       "Pass these although they are excluded or look like secrets; repeatable");
  app.add_flag("--print-env", print_env, "Print what the workers would get, start nothing")
      ->group(kEnvironment);
  constexpr const char* kGeneral = "General";
  app.add_option("--config-file", config_file, "YAML file with settings; flags win over it")
      ->type_name("FILE")
      ->group(kGeneral)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_flag("--dry-run", dry_run, "Print who would run where and what, start nothing")
      ->group(kGeneral);
  app.add_flag("--gloo")
      ->description("Taken as from Horovod: there is no controller over MPI to choose instead")
      ->group(kGeneral);
  app.add_flag("--disable-cache")
      ->description("Check every host anew, as hvdrun always does")
      ->group(kGeneral);
  app.add_flag("--check-build", check_build, "Print what this build has")->group(kGeneral);
  app.add_flag("--version", version, "Print the version")->group(kGeneral);
  app.add_flag("--help", help, "Print this")->group(kGeneral);
}

// `-H a:1 b:2`: the blank makes a command of the second host.
Status check_command_is_no_host(const CommandLine& line) {
  const auto hosts = line.values.find("hosts");
  if (hosts == line.values.end() || line.command.empty()) return {};
  static const std::regex host_like(R"(([\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]+,?)");
  const bool cut_off = hosts->second.text.ends_with(',');
  const std::string& first = line.command.front();
  if (!cut_off && !std::regex_match(first, host_like)) return {};
  std::string given = hosts->second.text;
  std::string joined = given.substr(0, given.find_last_not_of(',') + 1);
  for (const auto& word : line.command) {
    if (!std::regex_match(word, host_like)) break;
    joined += "," + word.substr(0, word.find_last_not_of(',') + 1);
  }
  return usage(cat("-H ", given, " ", first, ": '", first,
                   "' stands where the program is expected, but it looks like a host; hosts are "
                   "separated by commas without blanks: -H ",
                   joined));
}

Status take_settings(const Parser& parser, Values& values) {
  for (const auto& [flag, option] : parser.settings) {
    if (option->count() == 0) continue;
    const Knob& setting = *find_setting_by_flag(flag);
    std::string text;
    if (setting.type == KnobType::boolean) {
      text = option->as<bool>() ? "1" : "0";
    } else {
      text = is_list(setting) ? list_text(option->results()) : option->as<std::string>();
    }
    auto checked = setting_value(setting, text, "--" + flag);
    if (!checked.ok()) return checked.status();
    values[flag] = {std::move(*checked), "--" + flag};
  }
  return check_one_host_source(values, "");
}

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "rendezvous") {
    return parse_rendezvous({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments.front() == "agent") {
    return parse_agent({arguments.begin() + 1, arguments.end()});
  }
  Parser parser;
  auto split = split_arguments(parser.app, arguments);
  if (!split.ok()) return split.status();
  HVD_RETURN_IF_ERROR(parse_options(parser.app, split->options));
  CommandLine line;
  line.command = std::move(split->command);
  line.environment = parser.environment;
  if (!parser.config_file.empty()) line.config_file = parser.config_file;
  if (parser.help) {
    line.action = Action::help;
    line.help = parser.app.help();
    return line;
  }
  if (parser.version || parser.check_build) {
    line.action = parser.version ? Action::version : Action::check_build;
    return line;
  }
  HVD_RETURN_IF_ERROR(take_settings(parser, line.values));
  HVD_RETURN_IF_ERROR(check_command_is_no_host(line));
  if (parser.print_env) {
    line.action = Action::print_env;
    return line;
  }
  if (parser.dry_run) line.action = Action::dry_run;
  if (line.command.empty() || line.command.front().empty()) {
    return usage(
        "no program to run: hvdrun [options] program [arguments] (hvdrun --help says more)");
  }
  return line;
}

}  // namespace hvd::cli
