#include "base/machine/capacity.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/machine/cores.h"
#include "base/machine/gpus.h"
#include "base/text.h"

namespace hvd {

int slots_by(const Capacity& capacity) {
  return std::clamp(capacity.gpus > 0 ? capacity.gpus : capacity.cores, 1, kMaxSlots);
}

std::string slots_text(const Capacity& capacity) {
  const int slots = slots_by(capacity);
  const char* const of = capacity.gpus > 0 ? "GPU" : "core";
  if (slots == 1) return cat("1 slot, for its ", of);
  return cat(slots, " slots, one for each ", of);
}

Capacity capacity_of_this_machine() {
  const char* const visible = std::getenv(kVisibleDevices);
  const auto words = visible != nullptr ? std::optional<std::string>(visible) : std::nullopt;
  return {visible_gpus(count_gpus(), words), usable_cores()};
}

}  // namespace hvd
