// How the communicators of a world that has failed come to their end, as a state machine: told what
// has happened it says what to do next. Pure; for one thread at a time.
//
//     working   -- the world has failed -------> closing    no call goes into a communicator any
//     more closing   -- no thread is in a call --------> revoking   what is in flight ends; memory
//     stays
//                                                aborting   where the library cannot revoke
//     revoking  -- all are revoked ------------> resting    peers may still read this rank's memory
//               -- it fails -------------------> aborting
//     resting   -- the peers are idle, too ---> destroying
//     aborting, destroying -- done ------------> gone
//     closing, revoking, aborting, destroying -- too late -> stuck: only the process's end helps
//
// An abort frees memory that living peers still touch, and a communicator that another thread is
// using must not be aborted at all: hence the order.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hvd::runtime::gpu {

class CommunicatorTeardown {
 public:
  enum class State { working, closing, revoking, resting, aborting, destroying, gone, stuck };
  enum class Action {
    none,
    close,        // refuse new calls, and tell when all calls have returned
    revoke,       // all of them, and say how that went
    destroy,      // each
    abort,        // all of them together
    end_process,  // stuck_in() says why
  };
  struct Limits {
    std::chrono::milliseconds closing{10'000};
    std::chrono::milliseconds revoking{10'000};
    std::chrono::milliseconds ending{30'000};
  };

  explicit CommunicatorTeardown(Limits limits) : limits_(limits) {}

  Action failed(TimePoint now);
  // `can_revoke`: all that there are.
  Action all_out(bool can_revoke, TimePoint now);
  Action revoked(bool all_of_them, TimePoint now);
  // The members that are still there have all come to the end of the same world.
  Action peers_idle(TimePoint now);
  Action ended();
  Action tick(TimePoint now);

  State state() const { return state_; }
  TimePoint deadline() const { return deadline_; }
  std::string_view stuck_in() const { return stuck_in_; }

 private:
  Action go(State state, Action action, TimePoint deadline);

  Limits limits_;
  State state_ = State::working;
  TimePoint deadline_ = kNever;
  std::string_view stuck_in_;
};

}  // namespace hvd::runtime::gpu
