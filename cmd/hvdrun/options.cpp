#include "cmd/hvdrun/options.h"

#include <memory>
#include <regex>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/elastic_setup.h"
#include "cmd/hvdrun/environment.h"
#include "cmd/hvdrun/flag_table.h"
#include "cmd/hvdrun/job_commands.h"
#include "cmd/hvdrun/subcommands.h"

namespace hvd::cli {
namespace {

// The definition of hvdrun's command line; after parsing, the values are read from it.
struct Parser {
  CLI::App app{"Runs a program as many workers that train together.", "hvdrun"};
  std::map<std::string, CLI::Option*, std::less<>> settings;
  std::string config_file;
  EnvironmentArguments environment;
  bool dry_run = false;
  bool print_env = false;
  bool print_slurm_hosts = false;
  bool check_build = false;
  bool version = false;
  bool help = false;
  bool help_all = false;
  bool print_man = false;
  std::string completion_shell;

  Parser();

 private:
  void add_setting(const Knob& setting);
  void add_environment_flags();
  void add_general_flags();
};

Parser::Parser() {
  app.set_help_flag();
  app.formatter(help_formatter());
  for (const Knob* const setting : all_settings()) add_setting(*setting);
  add_environment_flags();
  add_general_flags();

  // Without a group a flag is accepted and never shown: the build calls these.
  app.add_flag("--print-man", print_man, "Print the man page")->group("");
  app.add_option("--print-completion", completion_shell, "Print completions for a shell")
      ->group("");
}

void Parser::add_setting(const Knob& setting) {
  CLI::Option* option = nullptr;
  if (setting.type == KnobType::boolean) {
    option = app.add_flag(cat("--", setting.flag, ",!--no-", setting.flag));
  } else {
    option = app.add_option(cat("--", setting.flag));
    option->expected(1)->type_name(flag_placeholder(setting));
  }

  option->description(flag_help(setting))->group(flag_group(setting));
  option->multi_option_policy(is_list(setting) ? CLI::MultiOptionPolicy::TakeAll
                                               : CLI::MultiOptionPolicy::TakeLast);
  settings[std::string(setting.flag)] = option;
}

void Parser::add_environment_flags() {
  constexpr const char* kGroup = "Environment of the workers";
  const auto list = [&](const char* flag, std::vector<std::string>& into, const char* type,
                        const char* text) {
    app.add_option(flag, into, text)
        ->type_name(type)
        ->group(kGroup)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };

  list("--env", environment.set, "NAME[=VALUE]", "Give the workers this variable; repeatable");
  list("--env-exclude", environment.excluded, "PATTERN",
       "Keep variables such as 'AWS_*' from the workers; repeatable");
  list("--env-include", environment.included, "PATTERN",
       "Pass variables that are excluded or look like secrets all the same; repeatable");
  app.add_flag("--print-env", print_env, "Print the workers' environment and exit")->group(kGroup);
}

void Parser::add_general_flags() {
  constexpr const char* kGroup = "General";
  app.add_option("--config-file", config_file, "YAML file with settings; flags override it")
      ->type_name("FILE")
      ->group(kGroup)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_flag("--dry-run", dry_run, "Print each rank's host and slot and the command, and exit")
      ->group(kGroup);
  app.add_flag("--print-slurm-hosts", print_slurm_hosts,
               "Print the nodes of this Slurm allocation that may work now, and exit")
      ->group(kGroup);
  app.add_flag("--check-build", check_build, "Print the features of this build and exit")
      ->group(kGroup);
  app.add_flag("--version", version, "Print the version and exit")->group(kGroup);
  app.add_flag("--help", help, "Print this help and exit")->group(kGroup);
  app.add_flag("--help-all", help_all, "Also list flags that only compatibility asks for")
      ->group(kGroup);

  const std::string compatibility(kCompatibilityGroup);
  app.add_flag("--gloo")
      ->description("No effect: there is no MPI controller to choose instead")
      ->group(compatibility);
  app.add_flag("--disable-cache")
      ->description("No effect: results of checks are never cached")
      ->group(compatibility);
}

// Empty if none of these was asked for.
std::string help_text(Parser& parser) {
  if (parser.print_man) return man_page(flag_tables());
  if (!parser.help && !parser.help_all) return {};
  if (!parser.help_all) {
    for (CLI::Option* const option : parser.app.get_options()) {
      if (option->get_group() == kCompatibilityGroup) option->group("");
    }
  }
  return parser.app.help();
}

// In `-H a:1 b:2` the blank makes the second host the command.
Status check_command_is_no_host(const Parser& parser, const CommandLine& line) {
  const CLI::Option& hosts = *parser.settings.at("hosts");
  if (hosts.count() == 0 || line.command.empty()) return {};
  static const std::regex host_like(R"(([\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]+,?)");
  std::string given = hosts.as<std::string>();
  const bool cut_off = given.ends_with(',');
  const std::string& first = line.command.front();
  if (!cut_off && !std::regex_match(first, host_like)) return {};
  std::string joined = given.substr(0, given.find_last_not_of(',') + 1);
  for (const auto& word : line.command) {
    if (!std::regex_match(word, host_like)) break;
    joined += "," + word.substr(0, word.find_last_not_of(',') + 1);
  }
  return usage(cat("-H ", given, " ", first, ": '", first,
                   "' is in the place of the program, but looks like a host; hosts are "
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
  return check_one_host_source(values);
}

}  // namespace

FlagTable main_flag_table() { return table_of(Parser().app, ""); }

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "rendezvous") {
    return parse_rendezvous({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments.front() == "agent") {
    return parse_agent({arguments.begin() + 1, arguments.end()});
  }

  if (!arguments.empty() && is_job_command(arguments.front())) {
    return parse_job_command(arguments.front(), {arguments.begin() + 1, arguments.end()});
  }

  Parser parser;
  auto split = split_arguments(parser.app, arguments);
  if (!split.ok()) return split.status();
  HVD_RETURN_IF_ERROR(parse_options(parser.app, split->options));
  CommandLine line;
  line.command = std::move(split->command);
  line.environment = parser.environment;
  if (!parser.config_file.empty()) line.config_file = parser.config_file;

  // Actions that start nothing ignore all other flags.
  line.help = help_text(parser);
  if (!parser.completion_shell.empty()) {
    auto script = completion_script(parser.completion_shell, flag_tables());
    if (!script.ok()) return script.status();
    line.help = std::move(*script);
  }
  if (!line.help.empty()) {
    line.action = Action::help;
    return line;
  }
  if (parser.version || parser.check_build) {
    line.action = parser.version ? Action::version : Action::check_build;
    return line;
  }

  HVD_RETURN_IF_ERROR(check_command_is_no_host(parser, line));
  HVD_RETURN_IF_ERROR(take_settings(parser, line.values));
  HVD_RETURN_IF_ERROR(check_worker_numbers(line.values));
  HVD_RETURN_IF_ERROR(check_env(line.environment));
  if (parser.print_env) {
    line.action = Action::print_env;
    return line;
  }
  if (parser.print_slurm_hosts) {
    line.action = Action::print_slurm_hosts;
    return line;
  }
  if (parser.dry_run) line.action = Action::dry_run;
  if (line.command.empty() || line.command.front().empty()) {
    return usage("no program to run: hvdrun [options] program [arguments] (see hvdrun --help)");
  }
  return line;
}

}  // namespace hvd::cli
