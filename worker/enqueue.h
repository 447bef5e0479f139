// The calls of the seam (hvd/adapter.h), for callers that need the world that has taken them on.
// Safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <hvd/adapter.h>

#include "runtime/control/world.h"

namespace hvd::worker {

// The effect of `done` of the submissions.
enum class Done { wakes_only, anything };

std::shared_ptr<runtime::World> enqueue(adapter::Submission work, Done done);
std::shared_ptr<runtime::World> enqueue_group(const std::string& name,
                                              std::vector<adapter::Submission> works, Done done);

}  // namespace hvd::worker
