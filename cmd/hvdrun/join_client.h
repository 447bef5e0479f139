// Joins the job of another machine's hvdrun: resolves, connects, proves the token, names this
// machine and waits to be admitted (base/protocol/join_link.h). Blocks; for one thread.
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
  std::string received;  // bytes for the agent that came with the answer
};

// Retries with pauses until join_timeout is over or the job answers that another attempt would not
// help. `say` gets a line whenever the reason for waiting has changed.
Result<Joined> join_job(const AgentArguments& arguments,
                        const std::function<void(std::string_view)>& say);

}  // namespace hvd::cli
