#include <hvd/error.h>

#include "worker/process/errors.h"

namespace hvd {

// Out of line, so that the types have one home and can be caught across libraries.
Error::~Error() = default;
InitError::~InitError() = default;
NotInitializedError::~NotInitializedError() = default;
InvalidArgumentError::~InvalidArgumentError() = default;
ProcessSetError::~ProcessSetError() = default;
OutOfMemoryError::~OutOfMemoryError() = default;
CollectiveError::~CollectiveError() = default;
HostsUpdated::~HostsUpdated() = default;
CommittedStateLostError::~CommittedStateLostError() = default;
StateDivergedError::~StateDivergedError() = default;
InternalError::~InternalError() = default;

namespace worker {

std::exception_ptr exception_of(const runtime::Failure& failure, runtime::Kind kind) {
  using Reason = ProcessSetErrorCode;
  if (failure.ok()) return nullptr;
  const auto& message = failure.status.message();
  const auto of_sets = [&message](Reason reason) {
    return std::make_exception_ptr(ProcessSetError(reason, message));
  };
  const bool about_sets =
      kind == runtime::Kind::add_process_set || kind == runtime::Kind::remove_process_set;

  if (!failure.world_failed) {
    switch (failure.status.code()) {
      case Code::invalid_argument:
        return std::make_exception_ptr(InvalidArgumentError(message));
      case Code::not_found:
        return of_sets(Reason::unknown);
      case Code::permission_denied:
        return of_sets(Reason::not_a_member);
      case Code::already_exists:
        return of_sets(Reason::duplicate);
      case Code::failed_precondition:  // some rank has called shutdown()
        if (about_sets) return of_sets(Reason::shut_down);
        break;
      case Code::resource_exhausted:
        return std::make_exception_ptr(OutOfMemoryError(message));
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
