// Detached threads with small stacks: a launcher may have many for a moment.
#pragma once

#include <functional>

#include "base/status.h"

namespace hvd::driver::ssh {

// With all signals blocked: those are for the driver's threads.
Status start_small_thread(std::function<void()> work);

}  // namespace hvd::driver::ssh
