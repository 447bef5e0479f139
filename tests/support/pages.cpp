#include "tests/support/pages.h"

#include <fstream>
#include <stdexcept>

namespace hvd::test {

std::string commands_of(const std::filesystem::path& page) {
  std::ifstream in(page);
  if (!in) throw std::runtime_error("cannot read " + page.string());
  std::string commands;
  std::string line;
  std::string before;
  bool inside = false;
  while (std::getline(in, line)) {
    const bool fence = line.starts_with("```");
    if (inside && !fence) commands += line + "\n";
    if (fence) inside = !inside && line == "```sh" && !before.starts_with("<!-- not run:");
    before = line;
  }
  return commands;
}

}  // namespace hvd::test
