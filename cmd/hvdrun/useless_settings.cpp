#include "cmd/hvdrun/useless_settings.h"

#include <array>
#include <string_view>

#include "base/text.h"
#include "cmd/hvdrun/settings_reader.h"

namespace hvd::cli {
namespace {

// The first one changes nothing while the text of `other` is this one.
struct Pair {
  std::string_view flag;
  std::string_view other;
  std::string_view text;
  std::string_view why;
};

constexpr std::string_view kNoTuner = "without --autotune";
constexpr std::string_view kNoCheck = "with --no-stall-check";

constexpr std::array kPairs{
    Pair{"autotune-log-file", "autotune", "0", kNoTuner},
    Pair{"autotune-warmup-samples", "autotune", "0", kNoTuner},
    Pair{"autotune-steps-per-sample", "autotune", "0", kNoTuner},
    // The variable of --stall-check is inverted.
    Pair{"stall-check-warning-time-seconds", "stall-check", "1", kNoCheck},
    Pair{"stall-check-shutdown-time-seconds", "stall-check", "1", kNoCheck},
    Pair{"prefix-output-with-timestamp", "tag-output", "none", "with --tag-output none"},
    Pair{"timeline-mark-cycles", "timeline-filename", "", "without --timeline-filename"},
    Pair{"timeline-mark-cycles", "timeline-filename", "DYNAMIC",
         "with --timeline-filename DYNAMIC: the program chooses when it starts the timeline"},
    Pair{"ssh-known-hosts", "ssh-host-key", "off", "with --ssh-host-key off"},
};

bool is_given(const Values& values, std::string_view flag) {
  const auto found = values.find(flag);
  if (found == values.end() || found->second.source.starts_with("environment variable")) {
    return false;
  }
  return find_setting_by_flag(flag)->type != KnobType::boolean || found->second.text == "1";
}

}  // namespace

std::vector<std::string> warnings_of_useless_settings(const Values& values) {
  const SettingsReader settings(values);
  std::vector<std::string> warnings;
  for (const Pair& pair : kPairs) {
    if (!is_given(values, pair.flag) || settings.text(pair.other) != pair.text) continue;
    warnings.push_back(cat(settings.name(pair.flag), " has no effect ", pair.why));
  }
  return warnings;
}

}  // namespace hvd::cli
