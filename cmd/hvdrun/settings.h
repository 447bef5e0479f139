// What can be set by a flag, in a config file or in the environment: the runtime's knobs
// (base/knobs.h) and the launcher's own settings, which are described by the same table rows.
// Gathered values are texts as the environment spells them; the source of each is kept, for errors.
// Values and free functions; not shared between threads.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/knobs.h"
#include "base/status.h"

namespace hvd::cli {

inline constexpr double kMaxSeconds = 31'536'000;  // a year; more is a slip of the finger

// hvdrun's own settings: -np, hosts, times, output. Rows without variable names are not read from
// the environment: a job's shape is not inherited by accident.
std::span<const Knob> launch_settings();

// Both tables.
std::vector<const Knob*> all_settings();
const Knob* find_setting_by_flag(std::string_view flag);
const Knob* find_setting_by_config_key(std::string_view key);

// Whether a setting may be given more than once, each time for one more. The text of its value is
// then list_text() of them all.
bool is_list(const Knob& setting);
// Whether its value is two words, "--blacklist-cooldown-range 10 100".
bool is_pair(const Knob& setting);
std::string list_text(const std::vector<std::string>& items);
std::vector<std::string> list_items(std::string_view text);

struct Value {
  std::string text;    // checked, as the environment spells it
  std::string source;  // "--grace", "job.yaml:3: launch.grace_seconds", "environment variable ..."
};

// `text` for a flag or config key, checked; the error names `shown_as`.
Result<std::string> setting_value(const Knob& setting, std::string_view text,
                                  std::string_view shown_as);

// By flag name. Flag beats file beats environment.
using Values = std::map<std::string, Value, std::less<>>;

// Every setting that `lookup` has a value for.
Result<Values> values_from_environment(const EnvironmentLookup& lookup);

// `stronger` over `weaker`. A host list, a hostfile and a discovery script are three ways to say
// one thing, so that the one in `stronger` also hides the others in `weaker`. The error names those
// of them of which `values` have more than one.
Status check_one_host_source(const Values& values, std::string_view where);
Values merge(Values stronger, const Values& weaker);

}  // namespace hvd::cli
