// One connection to one other rank: the two halves that move its bytes, its state, and what epoll
// has said of it. Nothing here blocks, waits or locks: all of it is guarded by the mutex of the
// messenger that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptors.h"
#include "base/security/sealing.h"
#include "base/status.h"
#include "runtime/transport/endpoint.h"
#include "runtime/transport/incoming.h"
#include "runtime/transport/outgoing.h"
#include "runtime/transport/route.h"

namespace hvd::runtime {

class Link {
 public:
  enum class State { idle, awaited, open, closed };

  Link(int own_rank, const Route& route, Unexpected& unexpected)
      : route_(route), incoming_(own_rank, route.rank, unexpected), outgoing_(route.rank) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int rank() const { return route_.rank; }
  const Route& route() const { return route_; }
  State state() const { return state_; }
  int fd() const { return fd_.get(); }
  const Status& closed_because() const { return closed_because_; }

  void await() { state_ = State::awaited; }
  void open(UniqueFd fd, const SessionKeys& keys, Protection protection);
  // Everything that was under way is dropped.
  void close(Status why);

  void send(Endpoint& endpoint, std::uint64_t slot, const std::byte* data, std::size_t bytes,
            std::shared_ptr<Stripes> stripes = nullptr) {
    outgoing_.add(endpoint, slot, data, bytes, std::move(stripes));
  }
  void expect(std::shared_ptr<Receive> receive) { incoming_.expect(std::move(receive)); }
  // When the oldest unexpected message that fits the receive came; 0: there is none.
  std::uint64_t waiting_since(const Receive& receive) const {
    return incoming_.waiting_since(receive);
  }
  // Gives that message to the receive. An error breaks the link.
  Status take_waiting(const std::shared_ptr<Receive>& receive, std::vector<Ended>& ended) {
    return incoming_.take_waiting(receive, ended);
  }
  // Takes the endpoint's messages back; false if one of them has begun.
  bool forget(const Endpoint& endpoint);

  // The readiness that epoll reports.
  void mark(bool readable, bool writable, bool hung_up);
  // There may be something to do.
  bool can_move() const { return (readable_ && !holds_up()) || (writable_ && !outgoing_.empty()); }
  bool is_stuck_sending() const { return !outgoing_.empty(); }
  bool holds_up() const { return incoming_.holds_up(); }
  // A message of this rank is under way or expected of it alone.
  bool is_needed() const { return is_stuck_sending() || incoming_.is_needed(); }
  // A message was under way, or might have come from this rank, when the connection was closed, or
  // was asked for afterwards.
  bool is_missed() const { return missed_; }
  void miss() { missed_ = true; }
  // A message of the endpoint in that direction is under way, or may come from this rank.
  bool serves(const Endpoint& endpoint, Direction direction) const;
  // So many bytes have come from the other end, or have been taken by it: what the kernel still
  // holds does not count.
  std::uint64_t moved(Direction direction) const;
  std::uint64_t all_read() const { return incoming_.all_read(); }
  std::uint64_t all_written() const { return outgoing_.all_written(); }  // to the kernel
  // Moves some bytes, as far as they go without waiting. unavailable: the other end has closed the
  // connection or is gone. data_loss: it sent what it should not, or somebody altered it.
  Status move_out(std::vector<Ended>& ended) {
    return outgoing_.write(fd_.get(), writable_, ended);
  }
  Status move_in(std::vector<Ended>& ended) {
    return incoming_.read(fd_.get(), readable_, hung_up_, ended);
  }
  // The message that holds up the others is kept, if there is room.
  void keep_what_holds_up() { incoming_.keep_what_holds_up(); }

  // For errors: what this link waits for, empty if nothing is odd.
  std::string explain() const;

 private:
  const Route route_;
  State state_ = State::idle;
  UniqueFd fd_;
  Status closed_because_;
  bool missed_ = false;
  bool readable_ = false;
  bool writable_ = false;
  bool hung_up_ = false;
  Incoming incoming_;
  Outgoing outgoing_;
};

}  // namespace hvd::runtime
