// The text of metrics, taken apart for tests.
#pragma once

#include <map>
#include <set>
#include <sstream>
#include <string>

namespace hvd::test {

// Values by the name with its labels, as the text has it: `hvd_hosts{state="ready"}`.
inline std::map<std::string, double> metric_values(const std::string& text) {
  std::map<std::string, double> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto blank = line.rfind(' ');
    if (line.empty() || line.front() == '#' || blank == std::string::npos) continue;
    values[line.substr(0, blank)] = std::stod(line.substr(blank + 1));
  }
  return values;
}

// The names of all families that have a type.
inline std::set<std::string> metric_families(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  const std::string type = "# TYPE ";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(type)) {
      names.insert(line.substr(type.size(), line.rfind(' ') - type.size()));
    }
  }
  return names;
}

}  // namespace hvd::test
