// The messages that carry blocks, piece by piece; for ring.cpp and halving.cpp. For one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "runtime/ops/blocks.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// A part of a part: what is sent as one message.
struct Piece {
  const std::byte* input;
  std::byte* result;
  std::size_t bytes;
};
// The pieces of each block.
std::vector<std::vector<Piece>> pieces_of(const std::vector<Block>& blocks);

// Makes the result of what has arrived and of the input, or of what the result holds already.
void reduce_piece(const Reduction& reduction, const Piece& piece, const std::byte* arrived,
                  bool from_input);
// To be called once for a piece, after its last reduction.
void finish_piece(const Reduction& reduction, const Piece& piece);

// The sends of this rank.
class Departures {
 public:
  explicit Departures(const Peers& peers) : peers_(peers) {}
  void send(int to, const std::byte* data, std::size_t bytes);
  // Until all has left: its memory may be written then.
  void await();

 private:
  const Peers& peers_;
  std::deque<MessageMemory> messages_;
};

// The messages that one rank sends to this one, in the order in which they are sent; kAhead
// messages are expected at a time.
class Arrivals {
 public:
  struct Place {
    std::byte* to;  // null: into the scratch memory
    std::size_t bytes;
  };
  // `scratch` may be null if all places are given.
  Arrivals(const Peers& peers, int from, std::vector<Place> places, FusionBuffer* scratch);
  // Waits for the next message. Data in the scratch memory is there until the next call.
  const std::byte* next();

 private:
  void expect_up_to(std::size_t end);

  const Peers& peers_;
  int from_;
  std::vector<Place> places_;
  std::size_t expected_ = 0;
  std::size_t arrived_ = 0;
  std::deque<MessageMemory> messages_;  // those that are expected
};

}  // namespace hvd::runtime
