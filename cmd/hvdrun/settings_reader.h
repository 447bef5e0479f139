// Typed access to merged settings. For one thread; the settings must outlive the reader.
#pragma once

#include <chrono>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/text.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {

// The error of inconsistent settings.
inline Status invalid(std::string message) { return {Code::invalid_argument, std::move(message)}; }

// Values of settings, or the table's default for those that are not set.
class SettingsReader {
 public:
  explicit SettingsReader(const Values& values) : values_(values) {}

  bool has(std::string_view flag) const { return values_.find(flag) != values_.end(); }
  std::string text(std::string_view flag) const {
    const auto found = values_.find(flag);
    if (found != values_.end()) return found->second.text;
    return std::string(find_setting_by_flag(flag)->default_text);
  }
  // As the person has given it, for messages: "-np", "job.yaml:3: elastic.min_np". The flag, if
  // the value is the default.
  std::string name(std::string_view flag) const {
    if (is_from_elsewhere(flag)) return values_.find(flag)->second.source;
    return flag == "num-proc" ? "-np" : cat("--", flag);
  }
  // The same with its value: "-np 2".
  std::string shown(std::string_view flag) const { return cat(name(flag), " ", text(flag)); }
  // The error of other code, which names the flag.
  Status explain(std::string_view flag, const Status& status) const {
    return status.ok() || !is_from_elsewhere(flag) ? status : status.with_context(name(flag));
  }
  int integer(std::string_view flag) const { return parse_number<int>(text(flag)).value_or(0); }
  bool boolean(std::string_view flag) const { return text(flag) == "1"; }
  std::chrono::milliseconds seconds(std::string_view flag) const {
    const double value = parse_number<double>(text(flag)).value_or(0);
    return std::chrono::milliseconds(std::llround(value * 1000));
  }

 private:
  // Than the command line.
  bool is_from_elsewhere(std::string_view flag) const {
    const auto found = values_.find(flag);
    return found != values_.end() && !found->second.source.starts_with("--");
  }

  const Values& values_;
};

}  // namespace hvd::cli
