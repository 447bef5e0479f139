// The border between errors as values and the exceptions of hvd/error.h.
#pragma once

#include <exception>

#include "runtime/failure.h"

namespace hvd::worker {

// Null if there is no failure.
std::exception_ptr exception_of(const runtime::Failure& failure);

}  // namespace hvd::worker
