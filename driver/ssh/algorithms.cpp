#include "driver/ssh/algorithms.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "driver/ssh/config.h"

namespace hvd::driver::ssh {

std::string complete_algorithms(std::string_view configured, std::string_view defaults) {
  const char change = configured.empty() ? '\0' : configured.front();
  if (change != '+' && change != '-' && change != '^') return std::string(configured);
  const std::vector<std::string> patterns = split(configured.substr(1), ',');
  const std::vector<std::string> before = split(defaults, ',');

  std::vector<std::string> result;
  const auto add = [&](const std::string& name) {
    if (std::find(result.begin(), result.end(), name) == result.end()) result.push_back(name);
  };
  const auto add_matching = [&](const std::string& pattern) {
    if (pattern.find_first_of("*?") == std::string::npos) return add(pattern);
    for (const std::string& name : before) {
      if (matches_pattern(name, pattern)) add(name);
    }
  };
  const auto is_removed = [&](const std::string& name) {
    return change == '-' &&
           std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches_pattern(name, pattern); });
  };

  if (change == '^') std::for_each(patterns.begin(), patterns.end(), add_matching);
  for (const std::string& name : before) {
    if (!is_removed(name)) add(name);
  }
  if (change == '+') std::for_each(patterns.begin(), patterns.end(), add_matching);
  // An empty list would stand for the default; libssh refuses this one.
  return result.empty() ? std::string(configured) : join(result, ",");
}

}  // namespace hvd::driver::ssh
