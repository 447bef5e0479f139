// One client's connection to the server: reads its requests one after the other, has the service
// answer them, writes the answers. A blocking read is suspended with the connection's own read
// still pending, so that a client that goes away is noticed, and is woken by cancelling that read:
// each connection waits for one thing only, and needs no timer. Deadlines are the server's
// sweeper's business. All on the server's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/clock.h"
#include "base/security/pending_handshakes.h"
#include "rendezvous/service.h"

namespace hvd::rendezvous {

class Session;

// The state that all sessions of one server share.
struct Hub {
  Hub(const Token& job_key, const ServerLimits& server_limits, bool legacy_clients,
      FindWorker find_worker);

  // Milliseconds since 1970. After the start of the server the monotonic clock counts them: if the
  // system's clock is set back, old requests do not become valid again.
  std::int64_t unix_now(TimePoint now) const;

  ServerLimits limits;
  TimePoint started;
  std::int64_t started_unix;
  Service service;
  std::list<Session*> sessions;
  PendingHandshakes<Session*> strangers;  // those of the sessions that have proved nothing yet
  CountedWarning closed_strangers;
  std::size_t receiving = 0;  // bytes of bodies that are announced and not yet stored
  bool stopping = false;

  // Blocking reads by their deadline; `on_new_wait` is called when the first of them changes.
  std::set<std::pair<TimePoint, Session*>> waits;
  std::function<void()> on_new_wait;

  std::function<void(std::string_view method, std::string_view target, std::string_view origin)>
      on_refused_legacy_client;
};

class Session {
 public:
  Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<Hub> hub);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Serves until the client leaves, misbehaves, or the server stops.
  static boost::asio::awaitable<void> serve(std::unique_ptr<Session> session);
  const std::string& origin() const { return origin_; }

  // The server's sweeper: ends what has lasted too long.
  void check_deadline(TimePoint now);
  // The deadline of its blocking read has come.
  void end_wait();
  void close();

 private:
  using Bytes = std::vector<char>;

  enum class Got { whole, closed, refused };
  boost::asio::awaitable<Got> read_head();
  boost::asio::awaitable<Got> receive_body(std::size_t size, std::string& body);
  boost::asio::awaitable<bool> read_body(std::size_t size, std::string& body);
  boost::asio::awaitable<std::optional<Reply>> wait_for(const PendingRead& read);
  boost::asio::awaitable<bool> answer(Reply& reply);
  boost::asio::awaitable<bool> write(std::string_view head, std::string_view body);
  std::size_t write_some(std::string_view head, std::string_view body, bool& failed);
  boost::asio::awaitable<void> linger();
  boost::asio::awaitable<bool> fill();

  void make_room();
  std::string_view unread() const { return {in_.data() + begin_, end_ - begin_}; }
  void take(std::size_t count);
  void allow(Duration time) { deadline_ = Clock::now() + time; }
  Duration time_for(std::size_t bytes) const;

  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<Hub> hub_;
  std::list<Session*>::iterator place_;
  TimePoint deadline_ = kNever;  // of what it waits for now, unless that is a key
  bool expired_ = false;
  std::string origin_;  // the client's address (base/security/pending_handshakes.h)

  Bytes in_;  // bytes [begin_, end_) came and were not used yet
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  RequestHead head_;
  Ticket ticket_;
  std::string out_;

  bool woken_ = false;  // a key that it waits for was written
  Entry woken_with_;    // and this is what
  bool wait_over_ = false;
};

}  // namespace hvd::rendezvous
