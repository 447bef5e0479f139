// Talks to a rendezvous server (rendezvous/server.h; the HTTP it speaks stands in
// docs/internals/rendezvous.md). It keeps one connection alive, signs every request with the job's
// key or the credential of one worker, checks the signature of every answer, and tries again with a
// growing pause while the server cannot be reached, until the call's deadline.
//
// A Client is for one thread at a time; make one per thread. Blocking calls end at their deadline,
// or as soon as another thread calls cancel(), which is the one call that is safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/status.h"
#include "rendezvous/rights.h"

namespace hvd::rendezvous {

struct ClientOptions {
  std::string host;  // an IP address
  std::uint16_t port = 0;
  // Asked before each request where the server is, in place of host and port: it may move. Null: it
  // does not. Safe from any thread.
  std::function<SocketAddress()> server = {};
  Incarnation worker = 0;  // whose credential the client holds; 0: it holds the job's key
  std::chrono::milliseconds connect_timeout{5'000};  // of one attempt
  std::chrono::milliseconds request_timeout{
      30'000};  // of a call that does not wait for a key, retries included
};

// A value with the version that the store gave it. Versions grow with every change of any key.
struct Versioned {
  std::string value;
  std::uint64_t version = 0;
};

class Client {
 public:
  // Looked at every 100 ms while a call waits: true ends it, with unavailable. Null: never.
  using GivesUp = std::function<bool()>;

  Client(ClientOptions options, const Token& key);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Each returns unauthenticated, resource_exhausted, invalid_argument, unavailable, or
  // failed_precondition for what this client may not do (any more), with the server's reason; get
  // and wait return not_found when the key is not there (any more, or in time: the message then
  // names it).
  Result<std::uint64_t> put(std::string_view scope, std::string_view key, std::string_view value);
  Result<Versioned> get(std::string_view scope, std::string_view key, const GivesUp& gives_up = {});
  // Blocks until the key exists with a version above `newer_than`, or the deadline
  // (deadline_exceeded).
  Result<Versioned> wait(std::string_view scope, std::string_view key, TimePoint deadline,
                         std::uint64_t newer_than = 0);
  Status erase(std::string_view scope, std::string_view key);
  // Writes only if the key still has `expected` (0: only if it does not exist); else
  // already_exists.
  Result<std::uint64_t> compare_and_set(std::string_view scope, std::string_view key,
                                        std::string_view value, std::uint64_t expected,
                                        const GivesUp& gives_up = {});

  // Many keys of one scope in one request.
  Status put_many(std::string_view scope, const std::map<std::string, std::string>& values);
  // All of `keys`, blocking until each exists; at the deadline the error names those that are
  // missing, and so does `missing` then, if it is given.
  Result<std::map<std::string, std::string>> wait_many(std::string_view scope,
                                                       const std::vector<std::string>& keys,
                                                       TimePoint deadline,
                                                       std::vector<std::string>* missing = nullptr);

  // For good: every call of this client, also a later one, returns aborted.
  void cancel();
  bool is_cancelled() const;

 private:
  class Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace hvd::rendezvous
