#include "driver/agents/agent_events.h"

#include <utility>

#include "base/protocol/agent_link.h"

namespace hvd::driver {
namespace {

template <typename Message, typename Translate>
Result<std::optional<Event>> translate(const Frame& frame, Translate translate) {
  auto message = Message::decode(frame.payload);
  if (!message) return message.status();
  return std::optional<Event>(translate(*std::move(message)));
}

}  // namespace

Result<std::optional<Event>> event_of(HostIndex host, const Frame& frame) {
  using agent_link::Kind;
  switch (static_cast<Kind>(frame.kind)) {
    case Kind::launched:
      return translate<agent_link::Launched>(frame, [&](const agent_link::Launched& message) {
        return event::Launched{host, message.incarnation, message.pid, message.kept};
      });
    case Kind::launch_failed:
      return translate<agent_link::LaunchFailed>(frame, [&](agent_link::LaunchFailed message) {
        return event::LaunchFailed{host, message.incarnation, message.error_number,
                                   std::move(message.message)};
      });
    case Kind::worker_initialised:
      return translate<agent_link::WorkerInitialised>(
          frame, [&](const agent_link::WorkerInitialised& message) {
            return event::Initialised{host, message.incarnation};
          });
    case Kind::worker_done:
      return translate<agent_link::WorkerDone>(frame, [&](const agent_link::WorkerDone& message) {
        return event::Done{host, message.incarnation};
      });
    case Kind::worker_ready:
      return translate<agent_link::WorkerReady>(frame, [&](const agent_link::WorkerReady& message) {
        return event::WorkerReady{host, message.incarnation};
      });
    case Kind::worker_leaves:
      return translate<agent_link::WorkerLeaves>(
          frame, [&](const agent_link::WorkerLeaves& message) {
            return event::LeaveRequested{host, message.incarnation};
          });
    case Kind::worker_left:
      return translate<agent_link::WorkerLeft>(frame, [&](agent_link::WorkerLeft message) {
        return event::WorkerLeft{host, message.incarnation, std::move(message.reason),
                                 message.for_good};
      });
    case Kind::described:
      return translate<agent_link::Described>(frame, [&](agent_link::Described message) {
        return event::Described{host, message.incarnation, std::move(message.text)};
      });
    case Kind::world_committed:
      return translate<agent_link::WorldCommitted>(
          frame, [&](const agent_link::WorldCommitted& message) {
            return event::Committed{host, message.incarnation, message.generation};
          });
    case Kind::host_leaves:
      return translate<agent_link::HostLeaves>(frame, [&](const agent_link::HostLeaves& leaves) {
        event::HostLeaves event{host, leaves.is_notice};
        if (leaves.left_ms >= 0) event.left = std::chrono::milliseconds(leaves.left_ms);
        return event;
      });
    case Kind::exited:
      return translate<agent_link::Exited>(frame, [&](const agent_link::Exited& message) {
        return event::Exited{
            host,
            message.incarnation,
            message.exit_code,
            message.signal_number,
            message.core_dumped,
            message.out_of_memory,
            message.memory_limit,
            message.kept,
        };
      });
    default:
      return std::optional<Event>();
  }
}

}  // namespace hvd::driver
