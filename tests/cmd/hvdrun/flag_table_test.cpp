// The man page and the completions have every flag that --help-all shows.
#include "cmd/hvdrun/flag_table.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <regex>
#include <set>

#include "base/text.h"
#include "cmd/hvdrun/options.h"
#include "tests/support/texts.h"

namespace hvd::cli {
namespace {

using test::contains;

std::string help_of(const std::vector<std::string>& arguments) {
  const auto line = parse_command_line(arguments);
  EXPECT_TRUE(line.ok()) << line.status().message();
  return line.ok() ? line->help : std::string();
}

// The flags in the first column of a help text: "--[no-]tcp" is --tcp and --no-tcp.
std::set<std::string> flags_in(const std::string& help) {
  static const std::regex pattern(R"(^  (-.*?)(  |$))");
  std::set<std::string> flags;
  for (const auto& line : split(help, '\n')) {
    std::smatch column;
    if (!std::regex_search(line, column, pattern)) continue;
    for (const auto& part : split(column.str(1), ',')) {
      const std::string text(trim(part));
      const std::string name = text.substr(0, text.find(' '));
      if (!name.starts_with('-')) continue;
      if (name == "--log-with[out]-timestamp") {
        flags.insert({"--log-with-timestamp", "--log-without-timestamp"});
      } else if (name.starts_with("--[no-]")) {
        flags.insert({"--" + name.substr(7), "--no-" + name.substr(7)});
      } else {
        flags.insert(name);
      }
    }
  }
  return flags;
}

std::set<std::string> flags_in(const FlagTable& table) {
  std::set<std::string> flags;
  for (const Flag& flag : table.flags) flags.insert(flag.names.begin(), flag.names.end());
  return flags;
}

TEST(FlagTable, HasEveryFlagOfTheHelpTexts) {
  const auto tables = flag_tables();
  const std::vector<std::vector<std::string>> helps{
      {"--help-all"},       {"rendezvous", "--help"}, {"agent", "--help"},   {"jobs", "--help"},
      {"status", "--help"}, {"top", "--help"},        {"metrics", "--help"}, {"page", "--help"},
      {"dump", "--help"},   {"stop", "--help"},       {"drain", "--help"},   {"scale", "--help"},
      {"token", "--help"},  {"replay", "--help"},     {"compare", "--help"}};
  ASSERT_EQ(tables.size(), helps.size());
  for (std::size_t at = 0; at < tables.size(); ++at) {
    const auto shown = flags_in(help_of(helps[at]));
    const auto in_table = flags_in(tables[at]);
    EXPECT_GE(shown.size(), 1U);
    for (const auto& flag : shown) EXPECT_EQ(in_table.count(flag), 1U) << flag;
  }
  EXPECT_GT(flags_in(help_of({"--help-all"})).size(), 90U);
}

TEST(FlagTable, EveryFlagStandsInTheManPageAndInEachCompletion) {
  const auto tables = flag_tables();
  const std::string man = man_page(tables);
  const std::string bash = *completion_script("bash", tables);
  const std::string zsh = *completion_script("zsh", tables);
  const std::string fish = *completion_script("fish", tables);

  for (const FlagTable& table : tables) {
    const std::string name = table.subcommand.empty() ? "main" : table.subcommand;
    for (const auto& flag : flags_in(table)) {
      const std::regex dash("-");
      EXPECT_TRUE(contains(man, cat("\\fB", std::regex_replace(flag, dash, "\\-"), "\\fR")))
          << flag;
      EXPECT_TRUE(std::regex_search(bash, std::regex(cat("[ '|]", flag, "[ ']")))) << flag;
      EXPECT_TRUE(std::regex_search(zsh, std::regex(cat("'\\*", flag, "=?\\[")))) << flag;
      const auto letters = flag.substr(flag.find_first_not_of('-'));
      EXPECT_TRUE(
          std::regex_search(fish, std::regex(cat("__hvdrun_at ", name, "' -[los] ", letters, " "))))
          << flag;
    }
  }
}

TEST(FlagTable, EverySubcommandStandsInTheSynopsisAndInTheUsage) {
  const auto tables = flag_tables();
  const std::string help = help_of({"--help"});
  const std::string man = man_page(tables);
  const auto begin = man.find(".SH SYNOPSIS\n");
  const auto end = man.find(".SH DESCRIPTION\n");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::string synopsis = man.substr(begin, end - begin);

  for (const FlagTable& table : tables) {
    if (table.subcommand.empty()) continue;
    const std::regex line(cat("\n\\.B hvdrun ", table.subcommand, "[ \n]"));
    EXPECT_TRUE(std::regex_search(synopsis, line)) << table.subcommand;
    const std::string usage = cat("hvdrun ", table.subcommand, " ");
    EXPECT_TRUE(contains(help, cat("\n       ", usage))) << table.subcommand;
    EXPECT_TRUE(contains(help_of({table.subcommand, "--help"}), cat("Usage: ", usage)))
        << table.subcommand;
  }
}

// Scripts for Horovod may use these flags, but they have no use of their own.
TEST(FlagTable, HelpLeavesOutFlagsThatOnlyCompatibilityAsksFor) {
  const auto shown = flags_in(help_of({"--help"}));
  const auto all = flags_in(help_of({"--help-all"}));
  for (const char* const flag : {"--torus-allreduce", "--autotune-bayes-opt-max-samples",
                                 "--autotune-gaussian-process-noise", "--mpi-threads-disable",
                                 "--gloo", "--disable-cache"}) {
    EXPECT_EQ(shown.count(flag), 0U) << flag;
    EXPECT_EQ(all.count(flag), 1U) << flag;
  }
  EXPECT_EQ(shown.count("--num-proc"), 1U);

  const auto line = parse_command_line({"--torus-allreduce", "--autotune-gaussian-process-noise",
                                        "0.5", "--autotune-bayes-opt-max-samples", "9", "--gloo",
                                        "--disable-cache", "--mpi-threads-disable", "./train"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(line->values.at("torus-allreduce").text, "1");
  EXPECT_EQ(line->values.at("autotune-gaussian-process-noise").text, "0.5");
  EXPECT_EQ(line->values.at("autotune-bayes-opt-max-samples").text, "9");
  EXPECT_EQ(line->values.at("mpi-threads-disable").text, "1");
}

// A setting without a default in the table says in its help what holds without it.
TEST(FlagTable, TheHelpNamesTheDefaultOfTheCooldown) {
  std::string help = help_of({"--help"});
  std::replace(help.begin(), help.end(), '\n', ' ');
  EXPECT_TRUE(std::regex_search(help, std::regex("default: +10 +600"))) << help;
}

TEST(FlagTable, AnUnknownShellIsAnError) {
  const auto line = parse_command_line({"--print-completion", "tcsh"});
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(line.status().message(), "--print-completion tcsh: must be bash, zsh or fish");
}

}  // namespace
}  // namespace hvd::cli
