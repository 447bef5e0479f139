// What the documents name is there: pages and headings behind links, flags, and files.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>
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

// All flags that hvdrun and its commands know.
std::set<std::string> flags_of_hvdrun() {
  static const std::regex flag(R"(--(\[no-\])?([a-z][a-z0-9-]*))");
  std::set<std::string> flags{"--help", "--no-"};
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help-all"}, {"agent", "--help"}, {"rendezvous", "--help"}}) {
    std::vector<std::string> command{binary("hvdrun")};
    command.insert(command.end(), words.begin(), words.end());
    const auto help = run(command);
    EXPECT_EQ(help.code, 0) << help.err;
    for (const auto& match : matches_of(help.out, flag)) {
      flags.insert("--" + match[2].str());
      if (match[1].matched) flags.insert("--no-" + match[2].str());
    }
  }
  return flags;
}

// Also those that stand in no help text: Horovod's other names of a flag.
bool hvdrun_knows(const std::string& flag) {
  static const auto flags = flags_of_hvdrun();
  if (flags.contains(flag)) return true;
  const auto refused = run({binary("hvdrun"), flag});
  EXPECT_NE(refused.code, 0);
  return refused.err.find("unknown option") == std::string::npos;
}

TEST(Pages, FlagsAreThoseOfHvdrun) {
  // What begins with a flag, in `...`; commands of other programs begin with their names.
  static const std::regex code(R"(`(--[a-z][a-z0-9-]*))");
  // They say which flags of another launcher hvdrun has and has not. The history names old ones.
  const std::set<std::string> of_others{"from_horovod.md", "from_torchrun.md", "CHANGELOG.md"};
  ASSERT_TRUE(hvdrun_knows("--host-discovery-script"));
  ASSERT_FALSE(hvdrun_knows("--host-discovery-scrypt"));
  for (const auto& page : pages()) {
    const auto path = page.lexically_relative(source()).string();
    // Internals also name flags of tests and tools.
    if (of_others.contains(page.filename()) || path.starts_with("docs/internals")) continue;
    const auto text = content_of(page);
    for (const auto& match : matches_of(text, code)) {
      EXPECT_TRUE(hvdrun_knows(match[1])) << path << " names " << match[1];
    }
  }
}

TEST(Pages, FilesThatTheInternalsNameExist) {
  static const std::regex path(
      R"(`((?:base|cmd|discovery|driver|rendezvous|runtime|worker|tests|scripts|docs|bench|examples)/[A-Za-z0-9_./-]*)`)");
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

}  // namespace
}  // namespace hvd::test
