// The border between errors as values and exceptions.
#pragma once

#include <exception>
#include <new>
#include <system_error>

#include "base/status.h"
#include "runtime/core/failure.h"
#include "runtime/core/request.h"

namespace hvd::worker {

// The status of `call`; resource_exhausted where a thread or memory is missing.
template <typename Call>
Status status_of(Call call) {
  try {
    return call();
  } catch (const std::system_error& error) {
    return {Code::resource_exhausted, error.what()};
  } catch (const std::bad_alloc&) {
    return {Code::resource_exhausted, "no memory left"};
  }
}

// The exception of hvd/error.h; null if there is no failure. `kind`: of the call that failed. If it
// failed alone (Failure::world_failed is false), the code says what it was: of process sets
// not_found, permission_denied and already_exists, and nothing else has these.
std::exception_ptr exception_of(const runtime::Failure& failure,
                                runtime::Kind kind = runtime::Kind::allreduce);

}  // namespace hvd::worker
