// How this machine joins the job of an hvdrun elsewhere: resolves, connects, proves the token, says
// who it is and is let in (base/protocol/join_link.h). Blocks; for one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/security/tls_psk.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "cmd/hvdrun/options.h"

namespace hvd::cli {

struct Joined {
  UniqueFd socket;  // non-blocking
  TlsSession tls;
  std::string received;  // of what is meant for the agent, already
};

// Tries again, with pauses, until the words' join_timeout is over or it was told that coming again
// would not help. `say` gets a line whenever what it waits for has changed.
Result<Joined> join_job(const AgentArguments& arguments,
                        const std::function<void(std::string_view)>& say);

}  // namespace hvd::cli
