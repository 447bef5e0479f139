// The requests of people to a running job: hosts that take no part, and the size of the world. A
// value.
#pragma once

#include <algorithm>
#include <set>
#include <string>

#include "driver/job/staffing.h"

namespace hvd::driver {

struct Requests {
  std::set<std::string> drained;  // hosts, by name
  int size = 0;                   // the world has no more workers; 0: nobody said

  Limits bound(Limits limits) const {
    if (size != 0) limits.most = limits.most == 0 ? size : std::min(limits.most, size);
    return limits;
  }
};

}  // namespace hvd::driver
