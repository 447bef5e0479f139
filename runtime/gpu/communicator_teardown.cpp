#include "runtime/gpu/communicator_teardown.h"

namespace hvd::runtime::gpu {

using Action = CommunicatorTeardown::Action;

Action CommunicatorTeardown::go(State state, Action action, TimePoint deadline) {
  state_ = state;
  deadline_ = deadline;
  return action;
}

Action CommunicatorTeardown::failed(TimePoint now) {
  if (state_ != State::working) return Action::none;
  return go(State::closing, Action::close, now + limits_.closing);
}

Action CommunicatorTeardown::all_out(bool can_revoke, TimePoint now) {
  if (state_ != State::closing) return Action::none;
  if (can_revoke) return go(State::revoking, Action::revoke, now + limits_.revoking);
  return go(State::aborting, Action::abort, now + limits_.ending);
}

Action CommunicatorTeardown::revoked(bool all_of_them, TimePoint now) {
  if (state_ != State::revoking) return Action::none;
  if (all_of_them) return go(State::resting, Action::none, kNever);
  return go(State::aborting, Action::abort, now + limits_.ending);
}

Action CommunicatorTeardown::peers_idle(TimePoint now) {
  if (state_ != State::resting) return Action::none;
  return go(State::destroying, Action::destroy, now + limits_.ending);
}

Action CommunicatorTeardown::ended() {
  if (state_ != State::aborting && state_ != State::destroying) return Action::none;
  return go(State::gone, Action::none, kNever);
}

Action CommunicatorTeardown::tick(TimePoint now) {
  if (now < deadline_) return Action::none;
  switch (state_) {
    case State::closing:
      stuck_in_ = "a call of NCCL did not return";
      break;
    case State::revoking:
      stuck_in_ = "revoking its communicators did not end";
      break;
    case State::aborting:
      stuck_in_ = "aborting its communicators did not end";
      break;
    case State::destroying:
      stuck_in_ = "destroying its communicators did not end";
      break;
    default:
      return Action::none;
  }
  return go(State::stuck, Action::end_process, kNever);
}

}  // namespace hvd::runtime::gpu
