// The rendezvous service: the store (rendezvous/store.h) behind HTTP/1.1. It lives on one Asio
// executor and thread, that of the driver or of `hvdrun rendezvous`; no call here is safe from
// another thread. It may listen on several addresses, all of them listeners to the same store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/port_range.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/status.h"
#include "rendezvous/limits.h"
#include "rendezvous/rights.h"

namespace hvd::rendezvous {

struct ServerOptions {
  SocketAddress bind{"127.0.0.1", 0};
  // From where a port 0 is taken: of `bind`, and of listen().
  ListenPorts ports;
  ServerLimits limits;
  // Unsigned requests of Horovod's own clients, on exactly the scopes and verbs that they use.
  bool legacy_clients = false;
  // Without legacy_clients: called once, when a client of Horovod asks for its world and is
  // refused. `request` is what it asked for, `origin` its address. On the server's thread.
  std::function<void(std::string_view request, std::string_view origin)> on_legacy_client;
  // The workers that have credentials of their own. On the server's thread. Null: there are none.
  FindWorker find_worker;
};

class Server {
 public:
  Server(boost::asio::io_context& io, const Token& job_key, ServerOptions options);
  ~Server();  // stops
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Begins to accept at options.bind. The error names the address.
  Status start();
  // Begins to accept at one more address, and tells it with its port. With port 0 it is the port of
  // the first address, if that is free there too, so that usually all have the same; else one of
  // options.ports.
  Result<SocketAddress> listen(const SocketAddress& where);
  // Accepts nobody at this address any more; open connections stay.
  void close(const SocketAddress& where);
  void stop();
  // Where it listens: the first address that is still open.
  SocketAddress address() const;

  // How many keys these scopes get before their DELETEs clear them: those of Horovod's own clients
  // (global: size, local_<host>, ...).
  void expect(const std::map<std::string, std::size_t>& scope_sizes);

  // As Rights has it.
  void set_members(std::uint64_t generation, std::vector<Incarnation> members, bool is_in_force);

  // The driver's own way into the store, without HTTP; wakes the clients that wait for the key.
  void put(std::string_view scope, std::string_view key, std::string value);
  // Empty if there is none.
  std::string get(std::string_view scope, std::string_view key) const;
  void erase_scope(std::string_view scope);
  // All of whose names this holds.
  void erase_scopes_if(const std::function<bool(std::string_view scope)>& condition);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::rendezvous
