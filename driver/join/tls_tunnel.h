// The tunnel to an agent that has joined by itself: it copies bytes between the TLS connection and
// one end of a socket pair, whose other end is the AgentConnection's link. Memory is bounded in
// both directions: a slow reader slows its writer down. Runs on the io_context, which must outlive
// the AgentHandle.
#pragma once

#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "base/security/tls_psk.h"
#include "base/status.h"
#include "driver/core/agent_handle.h"

namespace hvd::driver::join {

// `tls` is established; `first` is sent ahead of any bytes of the link.
Result<AgentConnection> open_tls_tunnel(boost::asio::ip::tcp::socket socket, TlsSession tls,
                                        std::string_view first);

}  // namespace hvd::driver::join
