#include "cmd/hvdrun/environment.h"

#include <algorithm>
#include <array>
#include <fnmatch.h>
#include <map>

#include "base/text.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::cli {
namespace {

// Shell functions that another shell may refuse, a directory that means nothing to a worker, and
// the secrets of launchers such as this one.
constexpr std::array<const char*, 4> kAlwaysExcluded{"BASH_FUNC_*", "OLDPWD", "*_SECRET_KEY",
                                                     "HVD_AGENT"};

bool matches(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

bool passes(const std::string& name, const EnvironmentWords& words) {
  if (matches(name, words.included)) return true;
  if (matches(name, words.excluded)) return false;
  return std::none_of(kAlwaysExcluded.begin(), kAlwaysExcluded.end(), [&](const char* pattern) {
    return ::fnmatch(pattern, name.c_str(), 0) == 0;
  });
}

}  // namespace

Result<std::vector<std::string>> worker_environment(const std::vector<std::string>& own,
                                                    const EnvironmentWords& words,
                                                    const Values& values) {
  std::map<std::string, std::string> outside;
  std::map<std::string, std::string> given;
  // Or the output of a Python worker would arrive only when its buffer is full.
  given.emplace("PYTHONUNBUFFERED", "1");
  for (const auto& entry : own) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string name = entry.substr(0, equals);
    outside[name] = entry.substr(equals + 1);
    if (passes(name, words)) given[name] = outside[name];
  }
  for (const auto& [flag, value] : values) {
    const auto& table = knobs();
    const auto knob = std::find_if(table.begin(), table.end(),
                                   [&flag = flag](const Knob& k) { return k.flag == flag; });
    if (knob == table.end()) continue;
    given[std::string(knob->variable)] = value.text;
    given[std::string(knob->horovod_name)] = value.text;
  }
  for (const auto& word : words.set) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name.empty()) {
      return Status(Code::invalid_argument, cat("--env ", word, ": needs a name before the '='"));
    }
    if (equals != std::string::npos) {
      given[name] = word.substr(equals + 1);
    } else if (const auto found = outside.find(name); found != outside.end()) {
      given[name] = found->second;
    } else {
      return Status(Code::not_found, cat("--env ", name,
                                         ": is not set in hvdrun's own environment; "
                                         "give it a value: --env ",
                                         name, "=..."));
    }
  }
  std::vector<std::string> result;
  result.reserve(given.size());
  for (const auto& [name, value] : given) result.push_back(cat(name, "=", value));
  return result;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

}  // namespace hvd::cli
