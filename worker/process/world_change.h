// The difference between a world and the next one. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/protocol/world_document.h"

namespace hvd::worker {

// The members of `before` that are not in `after`, in the order of their ranks; they point into
// `before`.
std::vector<const WorldMember*> members_lost(const WorldDocument& before,
                                             const WorldDocument& after);

// " without rank 1 (b#0) on host b, with 2 new workers". At most six of those that are lost are
// named.
std::string change_text(const WorldDocument& before, const WorldDocument& after);

}  // namespace hvd::worker
