// How a flag is shown to a person: its group, its placeholder, its default, and the layout of
// --help.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/knobs.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class FormatterBase;
class Option;
}  // namespace CLI

namespace hvd::cli {

// Flags that Horovod has and that hvd accepts, although nobody needs them here. `--help` leaves
// them out, `--help-all` lists them.
inline constexpr std::string_view kCompatibilityGroup = "Accepted for compatibility with Horovod";
bool is_for_compatibility(std::string_view flag);

std::string flag_group(const Knob& setting);
// "N", "FILE", "slot|host"; for a boolean, which takes no value, too.
std::string flag_placeholder(const Knob& setting);
// The help text with the default value behind it, in the flag's unit and sense.
std::string flag_help(const Knob& setting);

// "LOW HIGH" for a parsed option; empty for a flag without a value.
std::string value_placeholder(const CLI::Option& option);

// Shows the one-dash forms beside the long ones, and `--[no-]` for a boolean. Only for the command
// line of hvdrun itself.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace hvd::cli
