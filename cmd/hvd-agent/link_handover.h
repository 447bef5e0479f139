// How an agent that holds its workers, since its hvdrun has ended, comes to the link of the next
// one. The next hvdrun starts an agent on the host as always, by whatever way leads there. That
// agent finds the older one at an abstract Unix socket, whose name is made as that of host_claim.h,
// and passes it the descriptors of its own link with all that has arrived there. From then on the
// older agent serves the link. The newer one is only a messenger: it waits for the end of the
// older one and ends with the same code, so that whatever started it sees one agent.
//
// Both ends are processes of one user. For the supervisor's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/status.h"
#include "cmd/hvd-agent/event_loop.h"

namespace hvd::agent {

// At the claim_name() of host_claim.h.
std::string handover_name(const std::string& claim);

// A link, as a messenger passes it on.
struct HandedLink {
  UniqueFd in;   // both non-blocking
  UniqueFd out;  // may be the same socket
  UniqueFd log;  // for the agent's standard error
  std::string
      received;      // that was read from the link already: whole frames, and a part of the next
  pid_t parent = 0;  // of the messenger: hvdrun, if that is on this machine
};

// The end of the agent that holds its workers.
class HandoverListener {
 public:
  // `on_link` is called for each link that is passed; `on_messenger_gone` when the messenger of the
  // newest link has ended although it was not released, as if it had been this agent that was
  // killed.
  HandoverListener(EventLoop& loop, std::function<void(HandedLink link)> on_link,
                   std::function<void()> on_messenger_gone)
      : loop_(loop),
        on_link_(std::move(on_link)),
        on_messenger_gone_(std::move(on_messenger_gone)) {}

  // Listens under this name, which is free.
  Status listen(const std::string& name);
  // The messenger of the newest link ends, with this code. No effect without one.
  void release_messenger(int exit_code);

 private:
  void on_connection();
  void on_readable();
  void reject();

  EventLoop& loop_;
  const std::function<void(HandedLink)> on_link_;
  const std::function<void()> on_messenger_gone_;
  UniqueFd listener_;
  Watch listener_watch_;
  // A messenger whose link has not come completely.
  UniqueFd incoming_;
  Watch incoming_watch_;
  std::optional<HandedLink> link_;
  std::uint32_t missing_ = 0;  // bytes of HandedLink::received
  UniqueFd messenger_;
  Watch messenger_watch_;
};

// The messenger's end. Passes the link to the agent that listens under this name, and returns the
// connection to it. not_found: nobody listens there. Blocks until the deadline at most.
Result<UniqueFd> hand_over(const std::string& name, const HandedLink& link, TimePoint deadline);
// The code with which the messenger is to end; nothing as long as the older agent lives.
// `connection` is readable.
std::optional<int> exit_code_from(int connection);

// The standard error of this process is /dev/null from now on. So a reader of hvdrun's and its
// agent's standard error sees the end of it when hvdrun has ended.
void forget_standard_error();

}  // namespace hvd::agent
