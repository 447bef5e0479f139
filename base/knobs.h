// Every tunable of the runtime, once: its flag, its key in a config file, its environment names,
// what it may be and what it is by default. cmd/hvdrun makes flags and config keys of this table
// and hands the values to the workers as HVD_* variables; worker/ reads them back, or the HOROVOD_*
// name of the same knob. Flag beats file beats environment; HVD_* beats HOROVOD_*.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

enum class KnobType { integer, real, boolean, text, log_level, integer_list, port_range };

struct Knob {
  std::string_view flag;  // "fusion-threshold-mb"; booleans also take --no-<flag>
  // Other names of the flag, commas between: "-np", or "min-num-proc", which is also a key of the
  // same section and, if there is a variable, HVD_MIN_NUM_PROC.
  std::string_view aliases = {};
  std::string_view config_key;         // "params.fusion_threshold_mb"
  std::string_view variable = {};      // "HVD_FUSION_THRESHOLD"; empty: not read from there
  std::string_view horovod_name = {};  // "HOROVOD_FUSION_THRESHOLD"
  KnobType type = KnobType::text;
  std::string_view default_text = {};  // as the environment variable spells it; empty: unset
  double minimum = 0;                  // of integers and reals, in the flag's unit
  double maximum = 0;                  // 0: none
  double environment_scale = 1;        // environment value = flag value * this (megabytes to bytes)
  std::string_view choices = {};       // all values of a text, in any case; commas between
  bool inverted = false;               // the variable says the opposite of the flag (log_hide_time)
  std::string_view help;
};

std::span<const Knob> knobs();
const Knob* find_knob_by_variable(std::string_view variable);
std::vector<std::string> knob_aliases(const Knob& knob);
// The names that it has in the environment, the strongest first.
std::vector<std::string> knob_variables(const Knob& knob);
bool has_config_key(const Knob& knob, std::string_view key);

// `text`, given for the flag or config key, checked and turned into what stands in the environment.
// The error names the flag (or `shown_as`, if given), the value and what is allowed.
Result<std::string> knob_environment_value(const Knob& knob, std::string_view text,
                                           std::string_view shown_as = {});

// The value of a knob in the environment, by the first of its names that is set; an empty
// variable counts as not set. The value is checked; the error names the variable. `lookup` is
// getenv, or a test's.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;
Result<std::optional<std::string>> knob_from_environment(const Knob& knob,
                                                         const EnvironmentLookup& lookup);
EnvironmentLookup process_environment();

}  // namespace hvd
