// Settings by flag, config file or environment: the runtime's knobs (base/knobs.h) and the
// launcher's own settings, in tables of the same form. Values are texts in the form that the
// environment variable has; each keeps its source for error messages.
// Values and free functions; not shared between threads.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/knobs.h"
#include "base/status.h"

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

}  // namespace hvd::cli
