#include "cmd/hvdrun/flag_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/job_commands.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/settings.h"
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

namespace {

// The autotuner of hvd does not work by Bayesian optimisation, there is no torus on CPUs and no MPI
// to restrict, and each host is checked anew by every job.
constexpr std::array<std::string_view, 6> kCompatibilityFlags{"torus-allreduce",
                                                              "autotune-bayes-opt-max-samples",
                                                              "autotune-gaussian-process-noise",
                                                              "mpi-threads-disable",
                                                              "gloo",
                                                              "disable-cache"};

using Row = std::pair<std::string_view, std::string_view>;

constexpr std::array kGroups{
    Row{"launch", "Workers and hosts"},
    Row{"elastic", "Elastic jobs"},
    Row{"output", "Output"},
    Row{"status_page", "Status page"},
    Row{"metrics", "Metrics for Prometheus"},
    Row{"params", "Collectives"},
    Row{"autotune", "Autotuning"},
    Row{"timeline", "Timeline"},
    Row{"ssh", "Other hosts, through SSH"},
    Row{"network", "Network"},
    Row{"join", "Hosts that join by themselves (hvdrun agent --join)"},
    Row{"stall_check", "Stall check"},
    Row{"library_options", "Libraries"},
};

constexpr std::array kPlaceholders{
    Row{"hosts", "HOST:SLOTS,..."},
    Row{"ssh-host-key", "accept-new|strict|off"},
    Row{"host-discovery-script", "PROGRAM"},
    Row{"notice-command", "COMMAND"},
    Row{"blacklist-cooldown-range", "LOW HIGH"},
    Row{"network-interface", "NAME"},
    Row{"advertise-address", "ADDRESS"},
    Row{"join-bind", "ADDRESS:PORT"},
    Row{"metrics-bind", "ADDRESS:PORT"},
    Row{"status-page", "[ADDRESS:PORT]"},
    Row{"require-label", "KEY[=VALUE]"},
    Row{"tag-output", "rank|none"},
    Row{"local-ranks-filter", "R,..."},
    Row{"hostfile", "FILE"},
    Row{"ssh-config", "FILE"},
    Row{"ssh-known-hosts", "FILE"},
    Row{"events", "FILE|none"},
    Row{"timeline-filename", "FILE"},
};

template <std::size_t N>
std::string_view find_row(const std::array<Row, N>& rows, std::string_view key) {
  const auto* const found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.first == key; });
  return found == rows.end() ? std::string_view() : found->second;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(44); }

  std::string make_option_name(const CLI::Option* option, bool /*positional*/) const override {
    const std::string& flag = option->get_single_name();
    if (flag == "log-with-timestamp") return "--log-with[out]-timestamp";
    const Knob* const setting = find_setting_by_flag(flag);
    const bool both = setting != nullptr && setting->type == KnobType::boolean;

    std::string name = cat(both ? "--[no-]" : "--", flag);
    for (const Alias& alias : aliases()) {
      if (!alias.name.starts_with("--") && cat("--", flag) == alias.flag) {
        name = cat(alias.name, ", ", name);
      }
    }
    return name;
  }

  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    std::string usage =
        "Usage: hvdrun [options] program [arguments]\n"
        "       hvdrun rendezvous --bind ADDRESS:PORT [options]\n"
        "       hvdrun agent --join tls://ADDRESS:PORT [options]\n";
    for (const auto& command : job_command_names()) {
      usage += cat("       hvdrun ", command.name, " ", command.arguments, "\n");
    }
    return usage;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string placeholder = value_placeholder(*option);
    return placeholder.empty() ? "" : " " + placeholder;
  }
};

}  // namespace

bool is_for_compatibility(std::string_view flag) {
  return std::find(kCompatibilityFlags.begin(), kCompatibilityFlags.end(), flag) !=
         kCompatibilityFlags.end();
}

std::string flag_group(const Knob& setting) {
  if (is_for_compatibility(setting.flag)) return std::string(kCompatibilityGroup);
  const auto section = setting.config_key.substr(0, setting.config_key.find('.'));
  const auto group = find_row(kGroups, section);
  return std::string(group.empty() ? "Logging" : group);
}

std::string flag_placeholder(const Knob& setting) {
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
    case KnobType::port_range:
      return "A-B";
    case KnobType::boolean:
    case KnobType::text:
      break;
  }
  const auto named = find_row(kPlaceholders, setting.flag);
  if (!named.empty()) return std::string(named);
  return setting.flag.ends_with("-file") ? "FILE" : "DIR";
}

std::string flag_help(const Knob& setting) {
  std::string help(setting.help);
  if (setting.default_text.empty()) return help;

  std::string value(setting.default_text);
  if (setting.type == KnobType::boolean) {
    value = (value == "1") != setting.inverted ? "on" : "off";
  } else if (const auto number = parse_number<double>(value)) {
    value = cat(*number / setting.environment_scale);
  }
  return cat(help, " (default: ", value, ")");
}

std::string value_placeholder(const CLI::Option& option) {
  return option.get_items_expected_max() == 0 ? std::string() : option.get_type_name();
}

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace hvd::cli
