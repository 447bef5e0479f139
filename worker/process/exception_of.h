// The border between errors as values and the exceptions of hvd/error.h.
//
// If a call failed alone (Failure::world_failed is false), the code says what it was: of
// process sets not_found, permission_denied and already_exists, and nothing else has these.
#pragma once

#include <exception>

#include "runtime/core/failure.h"
#include "runtime/core/request.h"

namespace hvd::worker {

// Null if there is no failure. `kind`: of the call that failed.
std::exception_ptr exception_of(const runtime::Failure& failure,
                                runtime::Kind kind = runtime::Kind::allreduce);

}  // namespace hvd::worker
