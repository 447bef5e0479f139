// Labels of a host: KEY=VALUE, as its administrator gives them. In form they are those of
// Kubernetes: keys and values have at most 63 letters, digits and ".", "-", "_"; keys may have "/",
// too; a value may be empty. Pure, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

inline constexpr std::size_t kMaxLabels = 32;

// Each a label, no key twice, and not too many: else invalid_argument, which names the label.
Status check_labels(const std::vector<std::string>& labels);
// Each KEY=VALUE or KEY, which any value fits.
Status check_required_labels(const std::vector<std::string>& required);

// " (zone=eu, gpu=H100)"; of none, nothing.
std::string labels_text(const std::vector<std::string>& labels);

// permission_denied, with all that are missing, unless a host with these labels has all that are
// required.
Status require_labels(const std::vector<std::string>& required,
                      const std::vector<std::string>& labels);

}  // namespace hvd
