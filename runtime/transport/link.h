// One connection to one other rank, as a machine that moves bytes: what is to be sent goes in order
// straight from the sender's memory to the socket, what arrives goes straight into the memory that
// expects it. Nothing here blocks, waits or locks: all of it is guarded by the mutex of the
// messenger that owns it.
//
// A message that arrives before anybody expects it stays where it is, in the kernel, and holds up
// what is behind it: that is the backpressure. Only if something else is expected of the same rank,
// or if the messenger says so because all would stand still, it is kept in memory of ours, within a
// budget.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptors.h"
#include "base/status.h"
#include "runtime/transport/endpoint.h"
#include "runtime/transport/message_header.h"
#include "runtime/transport/route.h"

namespace hvd::runtime {

// A message that is expected, of one rank or of any of several, or a part of one.
struct Receive {
  Endpoint* endpoint;
  std::uint64_t slot;
  std::byte* data;
  std::size_t bytes;
  bool taken = false;  // a message has been found for it
  std::size_t sources = 1;
  std::shared_ptr<Stripes> stripes = nullptr;

  bool may_be_from(int rank) const {
    return !stripes || stripes->rank < 0 || stripes->rank == rank;
  }
  bool is_begun() const { return stripes && stripes->rank >= 0; }
};

// Memory for unexpected messages of all links of a messenger, and their order.
struct Unexpected {
  std::size_t bytes_left;
  std::uint64_t arrivals = 0;
};

class Link {
 public:
  enum class State { idle, awaited, open, closed };

  Link(int own_rank, const Route& route, Unexpected& unexpected)
      : own_rank_(own_rank), route_(route), rank_(route.rank), unexpected_(unexpected) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int rank() const { return rank_; }
  const Route& route() const { return route_; }
  State state() const { return state_; }
  int fd() const { return fd_.get(); }
  const Status& closed_because() const { return closed_because_; }

  void await() { state_ = State::awaited; }
  void open(UniqueFd fd);
  // Everything that was under way is dropped.
  void close(Status why);

  void send(Endpoint& endpoint, std::uint64_t slot, const std::byte* data, std::size_t bytes,
            std::shared_ptr<Stripes> stripes = nullptr);
  void expect(std::shared_ptr<Receive> receive) { expected_.push_back(std::move(receive)); }
  // When the oldest unexpected message that fits the receive came; 0: there is none.
  std::uint64_t waiting_since(const Receive& receive) const;
  // Gives that message to the receive. An error breaks the link.
  Status take_waiting(const std::shared_ptr<Receive>& receive, std::vector<Ended>& ended);
  // Takes the endpoint's messages back; false if one of them has begun.
  bool forget(const Endpoint& endpoint);

  // The readiness that epoll reports.
  void mark(bool readable, bool writable, bool hung_up);
  // There may be something to do.
  bool can_move() const { return (readable_ && !stopped_) || (writable_ && !outgoing_.empty()); }
  bool is_stuck_sending() const { return !outgoing_.empty(); }
  bool holds_up() const { return stopped_; }
  // A message of this rank is under way or expected of it alone.
  bool is_needed() const;
  // A message was under way, or might have come from this rank, when the connection was closed, or
  // was asked for afterwards.
  bool is_missed() const { return missed_; }
  void miss() { missed_ = true; }
  // A message of the endpoint in that direction is under way, or may come from this rank.
  bool serves(const Endpoint& endpoint, Direction direction) const;
  // So many bytes have come from the other end, or have been taken by it: what the kernel still
  // holds does not count.
  std::uint64_t moved(Direction direction) const;
  std::uint64_t all_read() const { return all_read_; }
  std::uint64_t all_written() const { return all_written_; }  // to the kernel
  // Moves some bytes, as far as they go without waiting. unavailable: the other end has closed the
  // connection or is gone.
  Status move_out(std::vector<Ended>& ended);
  Status move_in(std::vector<Ended>& ended);
  // The message that holds up the others is kept, if there is room.
  void keep_what_holds_up();

  // For errors: what this link waits for, empty if nothing is odd.
  std::string explain() const;

 private:
  static constexpr std::size_t kStageBytes = std::size_t{16} << 10;
  static constexpr std::size_t kMoveBytes = std::size_t{1} << 20;  // at a time

  struct Outgoing {
    Endpoint* endpoint;
    MessageHeader header;
    const std::byte* data;
    std::shared_ptr<Stripes> stripes;
  };
  struct Kept {
    MessageHeader header;
    std::unique_ptr<std::byte[]> data;
    std::uint64_t since;
    bool whole = false;
  };

  bool is_awaited() const;
  Status begin_message();
  Status put_into(std::shared_ptr<Receive> receive);
  bool keep();
  void end_message(std::vector<Ended>& ended);
  Status claim(const MessageHeader& header, Receive& receive) const;
  Status use_staged(std::vector<Ended>& ended);
  Result<std::size_t> read_more();
  std::size_t staged() const { return stage_end_ - stage_begin_; }

  const int own_rank_;
  const Route route_;
  const int rank_;
  Unexpected& unexpected_;
  State state_ = State::idle;
  UniqueFd fd_;
  Status closed_because_;
  bool missed_ = false;
  bool readable_ = false;
  bool writable_ = false;
  bool hung_up_ = false;

  std::deque<Outgoing> outgoing_;
  std::size_t written_ = 0;  // of the first of them, header included
  std::uint64_t all_written_ = 0;
  std::uint64_t all_read_ = 0;
  std::uint32_t next_sequence_ = 0;

  // The message that is arriving.
  bool in_message_ = false;
  bool stopped_ = false;  // in a message that has no place
  MessageHeader header_;
  std::uint64_t since_ = 0;
  std::size_t received_ = 0;
  std::byte* place_ = nullptr;
  std::shared_ptr<Receive> receive_;  // it goes there, or ...
  Kept* keeping_ = nullptr;           // ... to the last of kept_
  std::uint32_t expected_sequence_ = 0;

  std::unique_ptr<std::byte[]> stage_;  // headers, and what came with them
  std::size_t stage_begin_ = 0;
  std::size_t stage_end_ = 0;

  std::deque<std::shared_ptr<Receive>> expected_;  // some may have been taken elsewhere
  std::list<Kept> kept_;
};

}  // namespace hvd::runtime
