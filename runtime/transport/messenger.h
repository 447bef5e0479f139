// Messages between this rank and the others, over one connection to each, or several. No thread of
// its own: the waiting caller drives the connections. Of several waiting callers one is the leader,
// which polls; the others sleep until their message has ended or the lead is free. So bytes go
// between a connection and the memory of a message in the thread that waits for them, and what
// nobody waits for stays in the kernel: messages make progress while somebody waits for any of
// them, and when they begin.
//
// With several, a message of at least Options::striped_from bytes is cut into as many parts, which
// travel side by side; smaller ones take the first. Both ends know how long a message is, and so
// what becomes of it.
//
// A connection is asked for when a message first needs it, from the higher rank's side; it is made
// elsewhere (mesh_connector.h) and handed in.
//
// Messages from one rank with one slot are received in the order in which they were sent; the
// receive says how many bytes it expects. wait() tells them in that order, too: of the messages of
// one endpoint with one rank and one slot, in one direction, the one that was begun first ends
// first, however many connections they travel on, and whichever of them is the faster one. Messages
// with different ranks or slots are told as they end. A message that comes before its receive waits
// in the kernel and holds up those behind it, unless something behind it is needed, or sends are
// stuck because all ranks wait so: then up to kUnexpectedBytes are kept in memory.
//
// Failures are for ever. A connection that ends while a message needs it fails the messenger as a
// whole, and closes all its connections, so that each rank that waits for this one hears of it; an
// unused connection may end in silence. A message that has ended well before the failure can still
// be waited for.
//
// All calls are safe from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/status.h"
#include "runtime/net/connection.h"
#include "runtime/transport/endpoint.h"
#include "runtime/transport/link.h"
#include "runtime/transport/route.h"

namespace hvd::runtime {

class Messenger {
 public:
  static constexpr std::size_t kUnexpectedBytes = std::size_t{256} << 20;

  struct Options {
    int sockets = 1;  // with each rank
    std::size_t striped_from = std::size_t{256} << 10;
    Protection protection = Protection::integrity;  // of all connections
    // Told of bytes that have moved over any connection. It must not call back.
    std::function<void(std::size_t received, std::size_t sent)> on_moved = {};
  };
  Messenger(int rank, int size, const Options& options);
  Messenger(int rank, int size) : Messenger(rank, size, Options{}) {}
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // Once, before anything else. `dial` asks for a connection to a lower rank; it must not call back
  // and may come from any thread.
  Status open(std::function<void(const Route& route)> dial);
  // A connection that has proved to be this one. Closed again if there is one already.
  Status adopt(const Route& route, ProvedSocket socket);
  // There will be no such connection.
  void lose(const Route& route, const Status& why);

  // The endpoint and the memory must live until the message has ended or forget() was called.
  Status send(Endpoint& endpoint, int to, std::uint64_t slot, const std::byte* data,
              std::size_t bytes);
  // From whichever of the ranks sends first.
  Status receive(Endpoint& endpoint, std::span<const int> from, std::uint64_t slot, std::byte* data,
                 std::size_t bytes);
  // Until one of the endpoint's messages has ended; the rank at its other end. Nothing: release()
  // was called. It is a failure of the messenger if for `timeout`, or a little longer, no byte
  // moves over the connections of these messages: a message may take as long as it needs.
  Result<std::optional<int>> wait(Endpoint& endpoint, Direction direction,
                                  std::chrono::milliseconds timeout);
  // Ends the wait under way, or the next one, without a message.
  void release(Endpoint& endpoint, Direction direction);
  // The endpoint is no more. Messages of it that have begun cannot be taken back: that is a
  // failure.
  void forget(Endpoint& endpoint) noexcept;

  // Ends everything, for the reason given; no memory of a message is touched once it has returned.
  void abort(const Status& why);
  // ok while nothing has failed.
  Status failure() const;
  // The ranks whose connections were missed, for a message from them or to them, when they had
  // ended.
  std::vector<int> missed() const;

 private:
  class Waiter;
  class UnwindGuard;

  Link& link(const Route& route) { return *links_[index_of(route)]; }
  std::size_t index_of(const Route& route) const {
    return static_cast<std::size_t>(route.rank * options_.sockets + route.socket);
  }
  int stripes_of(std::size_t bytes) const {
    return options_.sockets > 1 && bytes >= options_.striped_from ? options_.sockets : 1;
  }
  // The whole message if there is one stripe.
  struct StripeExtent {
    std::size_t begin;
    std::size_t bytes;
  };
  static StripeExtent stripe_extent(std::size_t bytes, int stripe, int stripes);
  // The stripes of a message that begins; null if there is one connection.
  std::shared_ptr<Stripes> stripes_for(Endpoint& endpoint, Direction direction, std::uint64_t slot,
                                       int stripes, int rank) const;
  Status receive_on(int socket, std::span<const int> from, const std::shared_ptr<Receive>& wanted);
  Status check_peer(int rank, const char* what);
  Status need(Link& link);
  // Each of the functions below needs mutex_, and may end in failure_.
  std::optional<int> take(Endpoint& endpoint, Direction direction);
  // Bytes, over the connections of the endpoint's messages.
  std::uint64_t moved_for(const Endpoint& endpoint, Direction direction) const;
  void lead(std::unique_lock<std::mutex>& lock, const Waiter& self, Direction direction,
            TimePoint deadline);
  void poll(std::unique_lock<std::mutex>& lock, TimePoint deadline);
  void move(Link& link);
  void leave_for_leader(Link& link);
  void keep_what_holds_up();
  void settle();
  static void tell_in_order(const Ended& message);
  Status time_out(const Endpoint& endpoint, Direction direction,
                  std::chrono::milliseconds timeout) const;
  void link_ended(Link& link, const Status& why);
  void fail(const Status& why) noexcept;
  void close_all(const Status& why);
  bool must_stop();
  void wake_leader();
  std::string explain() const;
  // "rank 0 waited for a message from rank 2"
  std::string wait_text(const Endpoint& endpoint, Direction direction) const;

  const int rank_;
  const int size_;
  const Options options_;
  std::function<void(const Route&)> dial_;
  UniqueFd epoll_;
  UniqueFd wakeup_;

  mutable std::mutex mutex_;
  Unexpected unexpected_{kUnexpectedBytes};
  std::vector<std::unique_ptr<Link>> links_;  // by index_of(); those to itself are never open
  std::vector<Link*> movable_;
  std::vector<Ended> ended_;
  std::list<Waiter*> waiters_;
  bool has_leader_ = false;
  bool polling_ = false;  // the leader, without the mutex
  Status failure_;

  // An abort does not wait until a busy leader lets go of the mutex.
  std::atomic<bool> stopping_ = false;
  std::mutex stop_mutex_;
  Status stop_reason_;  // guarded by stop_mutex_
};

}  // namespace hvd::runtime
