#include "cmd/hvdrun/flag_table.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/flag_help.h"
#include "cmd/hvdrun/job_commands.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/subcommands.h"

namespace hvd::cli {
namespace {

// The main name, its opposite, then the aliases of both.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names{"--" + option.get_single_name()};
  const auto add = [&names](std::string name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  };

  for (const auto& name : option.get_lnames()) add("--" + name);
  const std::vector<std::string> own = names;
  for (const Alias& alias : aliases()) {
    if (std::find(own.begin(), own.end(), alias.flag) != own.end()) add(alias.name);
  }
  return names;
}

}  // namespace

std::vector<std::string> Flag::choices() const {
  if (placeholder == "LEVEL") return {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};
  if (placeholder.find('|') == std::string::npos) return {};
  return split(placeholder, '|');
}

FlagTable table_of(const CLI::App& app, std::string_view subcommand) {
  FlagTable table;
  table.subcommand = subcommand;
  table.description = app.get_description();
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_group().empty()) continue;  // not for people
    table.flags.push_back({names_of(*option), value_placeholder(*option), option->get_description(),
                           option->get_group()});
  }
  return table;
}

std::vector<FlagTable> flag_tables() {
  std::vector<FlagTable> tables{main_flag_table(), rendezvous_flag_table(), agent_flag_table()};
  for (const auto& command : job_command_names()) {
    tables.push_back(job_command_flag_table(command.name));
  }
  return tables;
}

}  // namespace hvd::cli
