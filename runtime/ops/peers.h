// Messages between those members of a process set that take part in one operation. They travel over
// the connections of the whole world: a Peers maps its ranks, 0 to size() - 1, to those of the
// world, and gives the set slots of its own, so that a member that is already in another set's next
// operation is not misunderstood. It is a view: made for one operation, at no cost.
//
// Each rank must know beforehand how long each message is: lengths are not told, and one
// that differs from what the other end expects breaks the connection. Messages from one rank to
// another arrive in the order in which they were sent and are expected; of one memory they end in
// that order, too, so that wait_received() is for the oldest one. A message of no bytes is not sent
// at all.
//
// A message that comes before its receive holds up what comes behind it from the same rank; on
// Gloo's stock transport, which asks the receiver before it sends, it costs a round trip: post
// early.
//
// For one thread. Everything that waits throws what Gloo throws (gloo::IoException: the connection
// broke, was aborted, or was silent for `timeout`); guard() in gloo_ops.cpp makes values of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace gloo::transport {
class Context;
class UnboundBuffer;
}  // namespace gloo::transport

namespace hvd::runtime {

// The size of the messages into which long data is cut, and how many of them are expected before
// they come. Measured with four processes on two cores, 102 MB, medians in ms beside 235 of Gloo's
// ring: 512 KB and 4 ahead 260, 1 MB and 4 ahead 210, 1 MB and 16 ahead 170, 4 MB and 4 ahead 170;
// 128 KB pieces take twice as long.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
inline constexpr std::size_t kAhead = 16;

// Memory that messages leave from or arrive in. Each transfer that was begun must be waited for,
// send by send and receive by receive, before the memory is used for something else.
class MessageMemory {
 public:
  MessageMemory();
  MessageMemory(const class Peers& peers, void* data, std::size_t bytes);
  ~MessageMemory();
  MessageMemory(MessageMemory&&) noexcept;
  MessageMemory& operator=(MessageMemory&&) noexcept;

  void send(int to, std::size_t offset, std::size_t bytes);
  void receive(int from, std::size_t offset, std::size_t bytes);
  // For one message: of those from one rank the one that was expected first.
  void wait_received();
  void wait_all_sent();

 private:
  const class Peers* peers_ = nullptr;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  std::size_t sending_ = 0;
};

class Peers {
 public:
  // `ranks`: those of the world that take part; `rank`: the own position among them.
  Peers(gloo::transport::Context& transport, std::vector<int> ranks, int rank, int process_set,
        std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The rank that is `distance` after the own one, in a circle.
  int next(int distance = 1) const { return (rank_ + distance) % size(); }
  int previous(int distance = 1) const { return (rank_ + size() - distance) % size(); }
  // Some of these, by their positions here; this rank is one of them.
  Peers part(const std::vector<int>& positions) const;
  // `data` is not written by sending.
  MessageMemory memory(const void* data, std::size_t bytes) const {
    return {*this, const_cast<void*>(data), bytes};
  }

 private:
  friend class MessageMemory;
  gloo::transport::Context& transport_;
  std::vector<int> ranks_;
  int rank_;
  std::uint64_t slot_;
  std::chrono::milliseconds timeout_;
};

}  // namespace hvd::runtime
