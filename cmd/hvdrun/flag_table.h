// Every flag of hvdrun and of its subcommands, read from the parsers themselves. The man page and
// the shells' completions are made of it, so that none of them can lack a flag.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

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

}  // namespace hvd::cli
