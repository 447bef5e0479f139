// The requests of people to a running job: hosts and slots that take no part, and the size of the
// world. A value.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "driver/job/staffing.h"

namespace hvd::driver {

// "b", or one slot of it, "b#2".
struct DrainTarget {
  explicit DrainTarget(const std::string& name) : host(name) {
    const auto hash = name.rfind('#');
    if (hash == std::string::npos) return;
    slot = parse_number<int>(name.substr(hash + 1));
    if (slot) host = name.substr(0, hash);
  }
  std::string text() const { return slot ? cat("slot ", host, "#", *slot) : cat("host ", host); }

  std::string host;
  std::optional<int> slot;
};

struct Requests {
  std::set<std::string> drained;  // hosts by name, and slots as "host#slot"
  int size = 0;                   // the world has no more workers; 0: nobody said

  bool is_drained(const std::string& host, int slot) const {
    return drained.contains(host) || drained.contains(cat(host, "#", slot));
  }
  std::vector<int> drained_slots(const std::string& host) const {
    std::vector<int> slots;
    for (const auto& name : drained) {
      const DrainTarget target(name);
      if (target.slot && target.host == host) slots.push_back(*target.slot);
    }
    return slots;
  }

  Limits bound(Limits limits) const {
    if (size != 0) limits.most = limits.most == 0 ? size : std::min(limits.most, size);
    return limits;
  }
};

}  // namespace hvd::driver
