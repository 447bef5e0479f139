// Every flag of hvdrun and of its subcommands, read from the parsers themselves, and how a flag is
// shown to a person. The man page and the shells' completions are made of the table, so that none
// of them can lack a flag. Pure.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/knobs.h"
#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
class FormatterBase;
class Option;
}  // namespace CLI

namespace hvd::cli {

struct Flag {
  // All ways to write it, each with its dashes: "--num-proc", "-np"; the long one first.
  std::vector<std::string> names;
  // The placeholder for its value, "N" or "hvd|gloo-tcp"; empty if it takes none.
  std::string placeholder;
  std::string help;
  std::string group;

  // Two values follow it, as in --blacklist-cooldown-range 10 100.
  bool takes_two() const { return placeholder.find(' ') != std::string::npos; }
  // Its value may be left out, as in --status-page [ADDRESS:PORT].
  bool value_is_optional() const { return placeholder.starts_with('['); }
  // All that the value may be, if that is a list.
  std::vector<std::string> choices() const;
};

struct FlagTable {
  std::string subcommand;  // empty: hvdrun itself
  std::string description;
  std::vector<Flag> flags;
};

FlagTable table_of(const CLI::App& app, std::string_view subcommand);

// hvdrun itself, then its subcommands.
std::vector<FlagTable> flag_tables();

// ---- how a flag is shown ----

// Flags that Horovod has and that hvd accepts, although nobody needs them here. `--help` leaves
// them out, `--help-all` lists them.
inline constexpr std::string_view kCompatibilityGroup = "Accepted for compatibility with Horovod";
bool is_for_compatibility(std::string_view flag);

std::string flag_group(const Knob& setting);
// "N", "FILE", "slot|host"; for a boolean, which takes no value, too.
std::string flag_placeholder(const Knob& setting);
// The help text with the default value behind it, in the flag's unit and sense.
std::string flag_help(const Knob& setting);

// "LOW HIGH" for a parsed option; empty for a flag without a value.
std::string value_placeholder(const CLI::Option& option);

// Shows the one-dash forms beside the long ones, and `--[no-]` for a boolean. Only for the command
// line of hvdrun itself.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// ---- what is made of the tables (completion.cpp, man_page.cpp) ----

// Completions of hvdrun's command line: the text of a file that the shell loads, "bash", "zsh" or
// "fish". Another shell is an error.
Result<std::string> completion_script(std::string_view shell, const std::vector<FlagTable>& tables);

// The manual page hvdrun(1), in the language of troff, with the macros of man(7).
std::string man_page(const std::vector<FlagTable>& tables);

}  // namespace hvd::cli
