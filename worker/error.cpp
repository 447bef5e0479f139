#include <hvd/error.h>

#include "worker/throw_failure.h"

namespace hvd {

// Out of line, so that the types have one home and can be caught across libraries.
Error::~Error() = default;
InitError::~InitError() = default;
NotInitializedError::~NotInitializedError() = default;
InvalidArgumentError::~InvalidArgumentError() = default;
CollectiveError::~CollectiveError() = default;
InternalError::~InternalError() = default;

namespace worker {

void throw_failure(const runtime::Failure& failure) {
  if (failure.ok()) return;
  const auto& message = failure.status.message();
  if (!failure.world_failed) {
    switch (failure.status.code()) {
      case Code::invalid_argument:
      case Code::already_exists:
        throw InvalidArgumentError(message);
      case Code::internal:
        throw InternalError(message);
      default:
        break;
    }
  }
  throw CollectiveError(message, failure.rank, failure.host, message);
}

}  // namespace worker
}  // namespace hvd
