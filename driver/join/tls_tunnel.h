// The tunnel to an agent that has joined by itself: it copies bytes between the TLS connection and
// one end of a socket pair, whose other end is the AgentConnection's link. Memory is bounded in
// both directions: a slow reader slows its writer down. Runs on the io_context, which must outlive
// the AgentHandle.
//
// The agent waits for its turn until the driver's first bytes come through the link: they begin the
// job with it (base/protocol/join_link.h). Until then the tunnel exchanges heartbeats with it, and
// ends by itself if the agent is silent for too long. An AgentHandle that is killed or destroyed
// before has dismissed the agent; a process that dies has not, so that its agents come again.
#pragma once

#include <boost/asio/ip/tcp.hpp>

#include "base/protocol/join_link.h"
#include "base/security/tls_psk.h"
#include "base/status.h"
#include "driver/core/agent_handle.h"

namespace hvd::driver::join {

// `tls` is established. Accepts the agent by this message.
Result<AgentConnection> open_tls_tunnel(boost::asio::ip::tcp::socket socket, TlsSession tls,
                                        const join_link::Accepted& accepted);

}  // namespace hvd::driver::join
