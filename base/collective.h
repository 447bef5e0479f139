// The names of the collectives, and the check of one that came over a link.
#pragma once

#include <string_view>

#include <hvd/types.h>

#include "base/status.h"

namespace hvd {

inline constexpr int kCollectives = 10;
static_assert(static_cast<int>(Collective::send_recv) + 1 == kCollectives);

std::string_view kind_name(Collective kind);  // "allreduce"
// data_loss: there is no such collective.
Status check(Collective kind);

}  // namespace hvd
