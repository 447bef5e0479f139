// Everything that the documents name exists: pages and headings behind links, flags, and files.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

const fs::path& source() {
  static const fs::path directory = HVD_SOURCE_DIR;
  return directory;
}

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

// README.md and its like, and everything in docs.
std::vector<fs::path> pages() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(source())) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  for (const auto& entry : fs::recursive_directory_iterator(source() / "docs")) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  return found;
}

std::vector<std::smatch> matches_of(const std::string& text, const std::regex& pattern) {
  return {std::sregex_iterator(text.begin(), text.end(), pattern), {}};
}

std::string without_code_blocks(const std::string& page) {
  std::string text;
  bool inside = false;
  for (const auto& line : split(page, '\n')) {
    const bool fence = trim(line).starts_with("```");
    if (fence) inside = !inside;
    if (!inside && !fence) text += std::string(line) + "\n";
  }
  return text;
}

// The anchors of a page's headings, as the usual viewers of Markdown make them.
std::set<std::string> anchors_of(const std::string& page) {
  std::set<std::string> anchors;
  for (const auto& line : split(without_code_blocks(page), '\n')) {
    if (!line.starts_with("#")) continue;
    std::string anchor;
    const std::string heading(trim(line.substr(line.find_first_not_of('#'))));
    for (const char c : heading) {
      if (c == ' ') anchor += '-';
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
    }
    anchors.insert(anchor);
  }
  return anchors;
}

TEST(Pages, LinksLeadToPagesAndHeadingsThatExist) {
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  for (const auto& page : pages()) {
    const auto text = without_code_blocks(content_of(page));
    for (const auto& match : matches_of(text, link)) {
      const std::string target = match[1];
      if (target.find("://") != std::string::npos) continue;
      const auto hash = target.find('#');
      const auto file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
      ASSERT_TRUE(fs::exists(file)) << page << " links to " << target;
      if (hash == std::string::npos) continue;
      EXPECT_TRUE(anchors_of(content_of(file)).contains(target.substr(hash + 1)))
          << page << " links to " << target;
    }
  }
}

// "Suite.Test" of every test in C++.
std::set<std::string> all_tests() {
  static const std::regex test(R"(\nTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\))");
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(source() / "tests")) {
    if (entry.path().extension() != ".cpp") continue;
    const auto text = content_of(entry.path());
    for (const auto& match : matches_of(text, test)) names.insert(cat(match[1], ".", match[2]));
  }
  return names;
}

TEST(Pages, EachDefenceOfTheThreatModelNamesATestThatExists) {
  static const std::regex name(R"(`(\w+\.[A-Z]\w+)`)");
  const auto tests = all_tests();
  const auto page = content_of(source() / "docs" / "internals" / "security.md");
  const auto names = matches_of(page, name);
  EXPECT_GT(names.size(), 30U);
  for (const auto& match : names) EXPECT_TRUE(tests.contains(match[1])) << match[1];
}

// The answer of hvdrun to a flag without a value, alone or after one of its commands.
const std::string& answer_to(const std::string& command, const std::string& flag) {
  static std::map<std::string, std::string> answers;
  auto& answer = answers[cat(command, " ", flag)];
  if (!answer.empty()) return answer;
  std::vector<std::string> words{binary("hvdrun")};
  if (!command.empty()) words.push_back(command);
  words.push_back(flag);
  const auto ended = run(words);
  return answer = cat("hvdrun has ended: ", ended.err);
}

bool knows(const std::string& command, const std::string& flag) {
  return answer_to(command, flag).find("unknown option") == std::string::npos;
}

bool hvdrun_knows(const std::string& flag) {
  // `--no-` alone stands for the form that booleans have.
  return flag == "--no-" || knows("", flag) || knows("agent", flag) || knows("rendezvous", flag) ||
         knows("status", flag) || knows("drain", flag) || knows("token", flag);
}

bool is_subcommand(const std::string& word) {
  static const std::set<std::string> kNames{"agent", "rendezvous", "jobs",  "status",
                                            "top",   "metrics",    "page",  "dump",
                                            "stop",  "drain",      "scale", "token"};
  return kNames.contains(word);
}

// The flags of a whole command, up to the program that it starts. A flag with two values ends it,
// too.
std::vector<std::string> unknown_flags_of(const std::string& words_after_hvdrun) {
  std::vector<std::string> unknown;
  std::string command;
  bool is_first = true;
  bool is_value = false;
  for (const auto& word : split(words_after_hvdrun, ' ')) {
    std::string text(trim(word));
    std::erase_if(text, [](char c) { return c == '[' || c == ']'; });
    if (text.empty()) continue;
    if (std::exchange(is_first, false) && is_subcommand(text)) {
      command = text;
    } else if (is_value) {
      is_value = false;
    } else if (!text.starts_with('-') || text == "--") {
      break;
    } else {
      const auto equals = text.find('=');
      const auto flag = text.substr(0, equals);
      if (!knows(command, flag)) unknown.push_back(flag);
      is_value = equals == std::string::npos &&
                 answer_to(command, flag).find("needs a value") != std::string::npos;
    }
  }
  return unknown;
}

// The left column of these pages has another launcher's flags.
std::string without_left_columns(const std::string& page) {
  std::string text;
  for (const auto& line : split(page, '\n')) {
    const auto cell = line.starts_with('|') ? line.find('|', 1) : std::string_view::npos;
    text += std::string(cell == std::string_view::npos ? line : line.substr(cell)) + "\n";
  }
  return text;
}

TEST(Pages, FlagsAreThoseOfHvdrun) {
  // Text in `...` that begins with a flag; commands of other programs begin with their names.
  static const std::regex code(R"(`(--[a-z][a-z0-9-]*))");
  static const std::regex command(R"((?:^|[\s/`])hvdrun +([^\n`#]*))");
  ASSERT_TRUE(hvdrun_knows("--host-discovery-script"));
  ASSERT_FALSE(hvdrun_knows("--host-discovery-scrypt"));
  ASSERT_EQ(unknown_flags_of("-np 2 --verbse -H a ./train --text"),
            std::vector<std::string>{"--verbse"});
  for (const auto& page : pages()) {
    const auto path = page.lexically_relative(source()).string();
    // Internals also name flags of tests and tools, and the history old ones.
    if (path == "CHANGELOG.md" || path.starts_with("docs/internals")) continue;
    const bool compares = path == "docs/from_horovod.md" || path == "docs/from_torchrun.md";
    const auto text = compares ? without_left_columns(content_of(page)) : content_of(page);
    for (const auto& match : matches_of(text, code)) {
      EXPECT_TRUE(hvdrun_knows(match[1])) << path << " names " << match[1];
    }
    for (const auto& match : matches_of(text, command)) {
      EXPECT_EQ(unknown_flags_of(match[1]), std::vector<std::string>{})
          << path << " has the command " << match[0];
    }
  }
}

TEST(Pages, FilesThatTheInternalsNameExist) {
  static const std::regex path(
      R"(`((?:base|cmd|discovery|driver|rendezvous|runtime|worker|python|tests|scripts|docs|bench|examples|cmake|deploy)/[A-Za-z0-9_./-]*)`)");
  for (const auto& page : pages()) {
    const auto text = content_of(page);
    for (const auto& match : matches_of(text, path)) {
      EXPECT_TRUE(fs::exists(source() / match[1].str())) << page << " names " << match[1];
    }
  }
}

TEST(Pages, PagesThatTheSourcesNameExist) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_/";
  const std::set<std::string> kinds{".h", ".cpp", ".c", ".cu", ".cmake", ".txt"};
  for (const auto* const room : {"base", "cmd", "discovery", "driver", "rendezvous", "runtime",
                                 "worker", "tests", "scripts", "bench", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source() / room)) {
      const bool script = std::string(room) == "scripts" && entry.is_regular_file();
      if (!script && !kinds.contains(entry.path().extension())) continue;
      const auto text = content_of(entry.path());
      for (auto at = text.find("docs/"); at != std::string::npos; at = text.find("docs/", at + 1)) {
        const auto end = std::min(text.find_first_not_of(kLetters, at), text.size());
        if (text.compare(end, 3, ".md") != 0) continue;
        const auto page = text.substr(at, end + 3 - at);
        EXPECT_TRUE(fs::exists(source() / page)) << entry.path() << " names " << page;
      }
    }
  }
}

// The block of lines that are indented, after the line that begins with `before`.
std::string block_after(const std::string& page, const std::string& before) {
  const auto begin = page.find("\n    ", page.find(before));
  std::string block;
  for (const auto& line : split(page.substr(begin + 1), '\n')) {
    if (!line.empty() && !line.starts_with("    ")) break;
    block += line.substr(std::min<std::size_t>(line.size(), 4)) + "\n";
  }
  return block;
}

TEST(Pages, TheConfigFileOfThePageOfHvdrunIsTaken) {
  const auto page = content_of(source() / "docs" / "hvdrun.md");
  const TemporaryDirectory directory;
  const auto file =
      directory.file("job.yaml", block_after(page, "`--config-file FILE` reads YAML"));
  const auto plan = run({binary("hvdrun"), "--config-file", file.string(), "--dry-run", "p"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.err, "");
}

// Pages show parts of a program that a test compiles and runs.
TEST(Pages, TheElasticProgramInCppIsThatOfTheExample) {
  const auto example = content_of(source() / "examples" / "elastic_cpp" / "count.cpp");
  for (const auto* const name : {"README.md", "docs/elastic.md", "docs/getting_started.md"}) {
    const auto page = content_of(source() / name);
    const auto begin = page.find("```cpp\n");
    ASSERT_NE(begin, std::string::npos) << name;
    const auto block =
        std::string_view(page).substr(begin + 7, page.find("```\n", begin + 7) - begin - 7);
    ASSERT_NE(block.find("hvd::elastic::run("), std::string_view::npos) << name;
    std::size_t at = 0;
    for (const auto& line : split(block, '\n')) {
      if (line.empty()) continue;
      const auto found = example.find(cat("\n", line, "\n"), at);
      ASSERT_NE(found, std::string::npos) << name << ": " << line;
      at = found + 1;
    }
  }
}

TEST(Scripts, AnswerHelp) {
  for (const char* const name :
       {"build", "demo", "fresh-root", "package", "setup", "test", "wheel"}) {
    const auto ended = run({(source() / "scripts" / name).string(), "--help"});
    EXPECT_EQ(ended.code, 0) << name << ": " << ended.err;
    EXPECT_NE(ended.out.find(cat("scripts/", name)), std::string::npos) << ended.out;
  }
}

}  // namespace
}  // namespace hvd::test
