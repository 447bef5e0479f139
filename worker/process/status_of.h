// Turns the exceptions of missing threads and memory into a Status.
#pragma once

#include <new>
#include <system_error>

#include "base/status.h"

namespace hvd::worker {

// The status of `call`, or resource_exhausted.
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

}  // namespace hvd::worker
