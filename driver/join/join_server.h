// Where agents that come by themselves are let in (`hvdrun agent --join`, cmd/hvdrun): TLS 1.3
// under the pre-shared key of the token file, so that both sides are known and the wire shows
// nothing; then base/protocol/join_link.h. A stranger costs a bounded handshake and is refused.
//
// Owned by the driver; every call and callback on its thread. The io_context outlives the server
// and every AgentConnection that came from it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/status.h"
#include "driver/core/agent_hold.h"

namespace hvd::driver::join {

struct JoinedAgent {
  std::string host;
  int slots = 1;
  AgentConnection connection;  // nothing was said to the agent yet
};

struct Callbacks {
  // Shall this host be let in? Else the reason why not; invalid_argument, not_found and
  // permission_denied say that coming again would not help. Called before an agent is accepted.
  std::function<Status(const std::string& host, int slots)> admit;
  std::function<void(JoinedAgent agent)> on_joined;
  // Somebody was refused; one line for a person, without secrets. The same is said once; of
  // strangers one in a while.
  std::function<void(std::string_view text)> on_refused;
};

struct Limits {
  std::chrono::milliseconds handshake{10'000};  // from the connection to the Join
  // That have not said who they are yet; when one more comes, the one that waits longest goes.
  std::size_t strangers = 256;
  std::chrono::milliseconds report_every{30'000};  // of strangers
};

class JoinServer {
 public:
  JoinServer(boost::asio::io_context& io, const Token& token, SocketAddress bind,
             Callbacks callbacks, Limits limits = {});
  ~JoinServer();  // closes the door; those who are in stay
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
