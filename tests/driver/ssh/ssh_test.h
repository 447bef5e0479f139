// Helpers for all tests of the launcher.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "tests/testbed/bed_test.h"

namespace hvd::test {

// The launcher's test program, on the head.
inline std::vector<std::string> launcher(const std::vector<std::string>& words) {
  std::vector<std::string> command{binary("hvd_ssh_launcher"), "--agent", binary("hvd-agent")};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

inline ExitStatus launch(HostBed& bed, const std::vector<std::string>& words) {
  auto command = launcher(words);
  command.emplace_back("--quit");
  return bed.head().run(command);
}

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The line that says why `host` cannot take part.
inline std::string error_of(const ExitStatus& status, const std::string& host) {
  for (const std::string& line : split(status.out, '\n')) {
    if (line.starts_with(host + " error ")) return line.substr(host.size() + 7);
  }
  return {};
}

inline std::string bash(Host& host, const std::string& script) {
  const auto status = host.shell(script);
  EXPECT_EQ(status.code, 0) << script << ": " << status.err;
  return status.out;
}

constexpr const char* kCache = ".cache/hvd/agents";

inline std::vector<std::string> cached(const Host& host) {
  std::vector<std::string> names;
  const auto directory = host.files() / "root" / kCache;
  if (!std::filesystem::exists(directory)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

inline bool runs_agent(const Host& host) {
  for (const auto& seen : host.processes()) {
    if (holds(seen.command_line, "hvd-agent-")) return true;
  }
  return false;
}

}  // namespace hvd::test
