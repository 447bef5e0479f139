#include <hvd/error.h>

#include "worker/exception_of.h"

namespace hvd {

// Out of line, so that the types have one home and can be caught across libraries.
Error::~Error() = default;
InitError::~InitError() = default;
NotInitializedError::~NotInitializedError() = default;
InvalidArgumentError::~InvalidArgumentError() = default;
ProcessSetError::~ProcessSetError() = default;
CollectiveError::~CollectiveError() = default;
InternalError::~InternalError() = default;

namespace worker {

std::exception_ptr exception_of(const runtime::Failure& failure) {
  if (failure.ok()) return nullptr;
  const auto& message = failure.status.message();
  if (!failure.world_failed) {
    switch (failure.status.code()) {
      case Code::invalid_argument:
      case Code::already_exists:
        return std::make_exception_ptr(InvalidArgumentError(message));
      case Code::internal:
        return std::make_exception_ptr(InternalError(message));
      default:
        break;
    }
  }
  return std::make_exception_ptr(CollectiveError(message, failure.rank, failure.host, message));
}

}  // namespace worker
}  // namespace hvd
