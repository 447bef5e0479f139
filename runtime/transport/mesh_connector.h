// Makes the data connections of a rank: one listener and one thread, which accepts and connects,
// and authenticates both ends before the messenger gets the connection. Strangers, garbage, silent
// peers, ranks of another generation and ranks that are already connected are refused; at most
// kMaxPending handshakes are under way at a time, each for a limited time.
//
// The higher of two ranks connects, for each of their connections. open() and close() belong to
// one thread; dial() is safe from any. The thread sleeps while there is nothing to do.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/port_range.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "runtime/net/member_acceptor.h"
#include "runtime/net/poller.h"
#include "runtime/transport/outbound_handshake.h"
#include "runtime/transport/route.h"

namespace hvd::runtime {

class MeshConnector {
 public:
  static constexpr std::size_t kMaxPending = 128;

  struct Options {
    Options(int own_rank, int all, std::string host, std::uint64_t number, const Token& job_token)
        : rank(own_rank),
          size(all),
          address(std::move(host)),
          generation(number),
          token(job_token) {}
    int rank;
    int size;
    std::string address;  // where the others reach this rank: an IP address
    std::uint64_t generation;
    Token token;
    ListenPorts ports = {};                              // where it listens
    int sockets = 1;                                     // at most, with each rank
    std::chrono::milliseconds connect_timeout{30'000};   // for one connection, all attempts
    std::chrono::milliseconds handshake_timeout{5'000};  // of one handshake
  };
  // Called on the thread of the connector.
  struct Hooks {
    std::function<Status(const Route& route, ProvedSocket socket)>
        connected;  // an error refuses it
    std::function<void(const Route& route, const Status& why)> unreachable;
  };

  MeshConnector(Options options, Hooks hooks)
      : options_(std::move(options)), hooks_(std::move(hooks)) {}
  ~MeshConnector() { close(); }
  MeshConnector(const MeshConnector&) = delete;
  MeshConnector& operator=(const MeshConnector&) = delete;

  // Listens, and starts the thread. The address, as others need it for connect().
  Result<SocketAddress> open();
  // Where the others listen, by rank; before the first dial().
  void set_addresses(std::vector<SocketAddress> addresses);
  void dial(const Route& route);
  // Ends the thread, and drops all connections that are not authenticated yet.
  void close();
  // The same without waiting for the thread, from any.
  void stop();

 private:
  struct Outbound {
    std::unique_ptr<OutboundHandshake> dial;  // none: between two attempts
    TimePoint next_attempt;
    TimePoint until;
  };

  void loop();
  void begin_new_dials();
  SocketAddress address_of(int rank);
  void attempt(const Route& route);
  void handle(const Route& route);
  void welcome(MemberAcceptor::Arrival arrival);
  std::optional<Route> route_named(const std::string& name) const;
  Status not_answered(const Route& route);
  void give_up(const Route& route, const Status& why);
  TimePoint serve_deadlines(TimePoint now);

  Options options_;
  Hooks hooks_;
  Poller poller_;
  std::optional<MemberAcceptor> acceptor_;
  std::map<Route, Outbound> outbound_;  // by what is called; the thread's
  std::map<int, Route> route_of_fd_;    // of their connections
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<SocketAddress> addresses_;  // guarded by mutex_
  std::vector<Route> to_dial_;            // guarded by mutex_
  std::thread thread_;
};

}  // namespace hvd::runtime
