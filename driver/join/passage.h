// The way to an agent that came by itself: bytes between its TLS connection and one end of a socket
// pair, whose other end is the AgentConnection's link. Bounded in memory both ways: who reads
// slowly is written to slowly. Carried by the io_context, which must outlive the AgentHold.
#pragma once

#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "base/security/tls_psk.h"
#include "base/status.h"
#include "driver/core/agent_hold.h"

namespace hvd::driver::join {

// `tls` is established; `first` is said before anything of the link.
Result<AgentConnection> open_passage(boost::asio::ip::tcp::socket socket, TlsSession tls,
                                     std::string_view first);

}  // namespace hvd::driver::join
