#include "base/machine/gpus.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace hvd {

int count_gpus(const std::filesystem::path& devices) {
  int gpus = 0;
  std::error_code error;
  // Other names that begin so, nvidiactl or nvidia-uvm, are not those of devices.
  for (std::filesystem::directory_iterator entry(devices, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_nvidia = name.starts_with("nvidia") && name.size() > 6;
    if (is_nvidia && name.find_first_not_of("0123456789", 6) == std::string::npos) ++gpus;
  }
  return gpus;
}

int visible_gpus(int gpus, const std::optional<std::string>& visible) {
  if (!visible || gpus == 0) return gpus;
  int left = 0;
  std::string_view rest = *visible;
  while (!rest.empty()) {
    const auto comma = std::min(rest.find(','), rest.size());
    const auto word = rest.substr(0, comma);
    // Others are UUIDs, also of parts of a GPU, of which there may be more than GPUs.
    if (const auto index = parse_number<int>(word)) {
      if (*index < 0 || *index >= gpus) break;
    } else if (!word.starts_with("GPU-") && !word.starts_with("MIG-")) {
      break;
    }
    ++left;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return left;
}

}  // namespace hvd
