#include "runtime/ops/ring.h"

#include <algorithm>
#include <deque>

namespace hvd::runtime {
namespace {

// A part of a part.
struct Piece {
  const std::byte* input;
  std::byte* result;
  std::size_t bytes;
};

std::vector<Piece> pieces_of(const Block& block) {
  std::vector<Piece> pieces;
  for (const auto& part : block) {
    for (std::size_t at = 0; at < part.bytes; at += kPieceBytes) {
      pieces.push_back({part.input == nullptr ? nullptr : part.input + at, part.result + at,
                        std::min(kPieceBytes, part.bytes - at)});
    }
  }
  return pieces;
}

class Ring {
 public:
  Ring(const Peers& peers, const std::vector<Block>& blocks)
      : peers_(peers), right_(peers.next()), left_(peers.previous()) {
    pieces_.reserve(blocks.size());
    for (const auto& block : blocks) pieces_.push_back(pieces_of(block));
  }

  // Sends the block `first`, from its inputs or its results; then, for `steps` blocks, each the one
  // before the last, receives and sends what became of it. The first `reductions` steps reduce,
  // those after them replace.
  void run(int first, bool from_inputs, int steps, int reductions, const Reduction* reduction,
           FusionBuffer* scratch);

 private:
  struct Arrival {
    const Piece* piece;
    int step;
    bool reduces;
  };

  std::byte* place(std::size_t index) const { return scratch_ + index % kAhead * place_bytes_; }
  void expect(const Arrival& arrival, std::size_t index);
  void send(const std::byte* data, std::size_t bytes);
  void await_sends();

  const Peers& peers_;
  int right_;
  int left_;
  std::vector<std::vector<Piece>> pieces_;  // of each block
  std::byte* scratch_ = nullptr;            // places for what is to be reduced
  std::size_t place_bytes_ = 0;
  std::deque<MessageMemory> receives_;  // as many as are expected, in their order
  std::deque<MessageMemory> sends_;
};

void Ring::expect(const Arrival& arrival, std::size_t index) {
  std::byte* const to = arrival.reduces ? place(index) : arrival.piece->result;
  receives_.push_back(peers_.memory(to, arrival.piece->bytes));
  receives_.back().receive(left_, 0, arrival.piece->bytes);
}

void Ring::send(const std::byte* data, std::size_t bytes) {
  sends_.push_back(peers_.memory(data, bytes));
  sends_.back().send(right_, 0, bytes);
}

void Ring::await_sends() {
  for (auto& sent : sends_) sent.wait_all_sent();
  sends_.clear();
}

void Ring::run(int first, bool from_inputs, int steps, int reductions, const Reduction* reduction,
               FusionBuffer* scratch) {
  std::vector<Arrival> arrivals;
  const int size = peers_.size();
  for (int step = 0; step < steps; ++step) {
    const int block = (first - 1 - step % size + 2 * size) % size;
    for (const auto& piece : pieces_[static_cast<std::size_t>(block)]) {
      arrivals.push_back({&piece, step, step < reductions});
    }
  }
  for (const auto& arrival : arrivals) {
    if (arrival.reduces) place_bytes_ = std::max(place_bytes_, arrival.piece->bytes);
  }
  if (scratch != nullptr) {
    scratch_ = scratch->reserve(std::min(kAhead, arrivals.size()) * place_bytes_);
  }
  std::size_t expected = 0;
  const auto expect_more = [&](std::size_t handled) {
    for (; expected < arrivals.size() && expected < handled + kAhead; ++expected) {
      expect(arrivals[expected], expected);
    }
  };
  expect_more(0);
  for (const auto& piece : pieces_[static_cast<std::size_t>(first)]) {
    send(from_inputs ? piece.input : piece.result, piece.bytes);
  }
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const auto& [piece, step, reduces] = arrivals[i];
    receives_.front().wait_received();
    receives_.pop_front();
    if (reduces) {
      const std::size_t elements = piece->bytes / reduction->element_size;
      reduction->reduce(piece->result, place(i), piece->input, elements);
      if (step == reductions - 1 && reduction->finish) reduction->finish(piece->result, elements);
    }
    if (step < steps - 1) send(piece->result, piece->bytes);
    expect_more(i + 1);
  }
  await_sends();
}

}  // namespace

std::vector<Block> cut_into_blocks(const std::vector<Part>& parts, std::size_t element_size,
                                   int blocks) {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.bytes;
  const std::size_t unit = kReduceGrain * element_size;
  const auto units = bytes / unit;
  const auto count = static_cast<std::size_t>(blocks);
  std::vector<Block> result(count);
  auto part = parts.begin();
  std::size_t used = 0;  // of *part
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end =
        i + 1 == count ? bytes : (units / count * (i + 1) + units % count * (i + 1) / count) * unit;
    while (at < end) {
      if (used == part->bytes) {
        ++part;
        used = 0;
        continue;
      }
      const std::size_t take = std::min(end - at, part->bytes - used);
      result[i].push_back(
          {part->input == nullptr ? nullptr : part->input + used, part->result + used, take});
      used += take;
      at += take;
    }
  }
  return result;
}

void ring_allreduce(const Peers& peers, const std::vector<Block>& blocks,
                    const Reduction& reduction, FusionBuffer& scratch) {
  const int steps = peers.size() - 1;
  Ring(peers, blocks).run(peers.previous(), true, 2 * steps, steps, &reduction, &scratch);
}

void ring_reduce_scatter(const Peers& peers, const std::vector<Block>& blocks,
                         const Reduction& reduction, FusionBuffer& scratch) {
  const int steps = peers.size() - 1;
  Ring(peers, blocks).run(peers.previous(), true, steps, steps, &reduction, &scratch);
}

void ring_allgather(const Peers& peers, const std::vector<Block>& blocks) {
  Ring(peers, blocks).run(peers.rank(), false, peers.size() - 1, 0, nullptr, nullptr);
}

}  // namespace hvd::runtime
