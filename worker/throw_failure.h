// The border between errors as values and the exceptions of hvd/error.h.
#pragma once

#include "runtime/failure.h"

namespace hvd::worker {

// Does nothing if there is no failure.
void throw_failure(const runtime::Failure& failure);

}  // namespace hvd::worker
