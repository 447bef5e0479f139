// Settings by flag, config file or environment: the runtime's knobs (base/knobs.h) and the
// launcher's own settings, in tables of the same form. Values are texts in the form that the
// environment variable has; each keeps its source for error messages.
// Values and free functions; not shared between threads.
#pragma once

#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/knobs.h"
#include "base/socket.h"
#include "base/status.h"
#include "base/text.h"

namespace hvd::cli {

inline constexpr double kMaxSeconds = 31'536'000;  // a year; more is a typing error

// hvdrun's own settings: -np, hosts, times, output. Rows without variable names are not read from
// the environment, so that a job does not inherit its size or its hosts by accident.
std::span<const Knob> launch_settings();

// Both tables.
std::vector<const Knob*> all_settings();
const Knob* find_setting_by_flag(std::string_view flag);
const Knob* find_setting_by_config_key(std::string_view key);

// Whether a setting may be repeated, each time with one more item. The text of its value is then
// list_text() of all items.
bool is_list(const Knob& setting);
// Whether its value is two arguments, "--blacklist-cooldown-range 10 100".
bool is_pair(const Knob& setting);
// The value that a flag without one stands for; nothing: the flag needs a value. The next argument
// is the value of such a flag if it looks like an address.
std::optional<std::string> value_without_one(const Knob& setting);
// The address of --status-page as driver::PageSpec has it. In place of an address, `loopback` is
// one of the job's own.
inline constexpr std::string_view kOwnLoopback = "loopback";
Result<SocketAddress> parse_page_address(std::string_view text);
std::string list_text(const std::vector<std::string>& items);
std::vector<std::string> list_items(std::string_view text);

struct Value {
  std::string text;    // checked, as the environment spells it
  std::string source;  // "--grace", "job.yaml:3: launch.grace_seconds", "environment variable ..."
};

// `text` for a flag or config key, checked; the error names `shown_as`.
Result<std::string> setting_value(const Knob& setting, std::string_view text,
                                  std::string_view shown_as);

// "0,2": the ranks of --local-ranks-filter; none: it is no list of ranks.
std::optional<std::set<int>> parse_local_ranks(std::string_view text);

// The names in the items of --network-interface; none: one of them is empty.
std::optional<std::vector<std::string>> parse_interfaces(std::string_view text);

// By flag name. Flag beats file beats environment.
using Values = std::map<std::string, Value, std::less<>>;

// Every setting that `lookup` has a value for.
Result<Values> values_from_environment(const EnvironmentLookup& lookup);

// merge() takes a value of `stronger` over one of `weaker`. A host list, a hostfile and a discovery
// script are alternatives: one of them in `stronger` hides all of them in `weaker`. More than one
// in the same source is an error.
Status check_one_host_source(const Values& values);
Values merge(Values stronger, const Values& weaker);

// The error of inconsistent settings.
inline Status invalid(std::string message) { return {Code::invalid_argument, std::move(message)}; }

// Typed access to merged settings, or to the table's default for those that are not set. For one
// thread; the settings must outlive the reader.
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

// Settings that were given and change nothing, because another one turns off what they are for.
// Horovod accepts most of these pairs, so they are no errors. A line for each; variables of the
// environment, which hold for many jobs, are left out.
std::vector<std::string> warnings_of_useless_settings(const Values& values);

}  // namespace hvd::cli
