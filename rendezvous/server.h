// The rendezvous service: the store (rendezvous/store.h) behind HTTP/1.1. It lives on one Asio
// executor and thread, that of the driver or of `hvdrun rendezvous`; no call here is safe from
// another thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "base/crypto.h"
#include "base/socket.h"
#include "base/status.h"

namespace hvd::rendezvous {

struct ServerLimits {
  std::size_t max_key = 512;                      // bytes
  std::size_t max_scope = 512;                    // bytes
  std::size_t max_value = std::size_t{16} << 20;  // bytes
  std::size_t max_scopes = 10'000;                // scopes at a time
  std::size_t max_total = std::size_t{1} << 30;   // bytes of keys and values
  std::size_t max_header = std::size_t{8} << 10;  // bytes of a request's header
  std::size_t max_connections = 20'000;
  std::chrono::milliseconds idle_timeout{120'000};    // between requests
  std::chrono::milliseconds receive_timeout{10'000};  // for a request that has begun
  std::chrono::milliseconds max_wait{600'000};        // of a blocking read
};

struct ServerOptions {
  SocketAddress bind{"127.0.0.1", 0};
  ServerLimits limits;
  // Unsigned requests of Horovod's own clients, on exactly the scopes and verbs that they use.
  bool legacy_clients = false;
  // How many keys each legacy scope gets before its DELETEs clear it (global: size, local_<host>,
  // ...).
  std::map<std::string, std::size_t> legacy_scope_sizes;
};

class Server {
 public:
  Server(boost::asio::io_context& io, const Token& token, ServerOptions options);
  ~Server();  // stops
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds and begins to accept. The error names the address.
  Status start();
  void stop();
  // Where it listens, after start().
  SocketAddress address() const;

  // The driver's own way into the store, without HTTP; wakes those who wait for the key.
  void put(std::string_view scope, std::string_view key, std::string value);
  void erase_scope(std::string_view scope);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::rendezvous
