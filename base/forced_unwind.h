// Threads that end by force: pthread_cancel() and pthread_exit() unwind the stack like an
// exception, which every `catch (...)` on the way must pass on, or the process is aborted.
#pragma once

#include <exception>

namespace hvd {

// Within `catch (...)`: what was caught is no exception but the end of this thread, to be passed on
// with `throw;`. The system's unwinding carries no exception object.
//
// (`catch (abi::__forced_unwind&)` says the same, but binds a reference to no object, which
// UndefinedBehaviorSanitizer rightly reports.)
inline bool thread_is_ending() noexcept { return std::current_exception() == nullptr; }

}  // namespace hvd
