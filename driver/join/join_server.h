// Accepts agents that join by themselves (`hvdrun agent --join`, cmd/hvdrun): TLS 1.3 under the
// pre-shared key of the token file, or of a join token (driver/join/join_tokens.h), which
// authenticates both sides and encrypts the connection,
// then base/protocol/join_link.h. A connection without the token costs a bounded handshake and is
// refused, except for health probes, which get an answer.
//
// Owned by the driver; every call and callback on its thread. The io_context outlives the server
// and every AgentConnection that came from it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/port_range.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/status.h"
#include "driver/core/agent_handle.h"
#include "driver/join/join_tokens.h"

namespace hvd::driver::join {

struct JoinedAgent {
  std::string host;
  int slots = 1;
  AgentConnection connection;  // nothing was sent to the agent yet; has the host's labels
};

struct Callbacks {
  // Decides whether this host may join, before its agent is accepted. An error is the reason why
  // not; invalid_argument, not_found and permission_denied mean that trying again would not help.
  std::function<Status(const std::string& host, const std::vector<std::string>& labels)> admit;
  std::function<void(JoinedAgent agent)> on_joined;
  // An agent or a connection was refused; one line for the user, without secrets. The same line is
  // reported once, and connections without the token at most once in Limits::report_every.
  std::function<void(std::string_view text)> on_refused;
};

struct Limits {
  std::chrono::milliseconds handshake{10'000};  // from the connection to the Join
  // Connections that are not authenticated yet; with one more the oldest of them is closed.
  std::size_t max_pending = 256;
  std::chrono::milliseconds report_every{30'000};  // refused connections without the token
  // An agent that waits for its turn and gives no sign of life for so long is lost; it judges the
  // driver by the same limit.
  std::chrono::milliseconds silence{30'000};
  // For so long agents keep their workers when the connection is lost, and join again; 0: not.
  std::chrono::milliseconds hold{0};
};

class JoinServer {
 public:
  // With port 0, `bind` gets one of `ports`. `join_tokens` outlive this; null: there are none.
  JoinServer(boost::asio::io_context& io, const Token& token, SocketAddress bind,
             Callbacks callbacks, Limits limits = {}, ListenPorts ports = {},
             JoinTokens* join_tokens = nullptr);
  ~JoinServer();  // accepts no more agents; connections that were handed over stay open
  JoinServer(const JoinServer&) = delete;
  JoinServer& operator=(const JoinServer&) = delete;

  // Binds and begins to accept. The error names the address.
  Status start();
  SocketAddress address() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver::join
