#include "runtime/ops/ring.h"

#include <utility>

#include "runtime/ops/pieces.h"

namespace hvd::runtime {
namespace {

// Sends the block `first`, from its inputs or its results; then, for `steps` blocks, each the one
// before the last, receives and sends what became of it. The first `reductions` steps reduce, those
// after them replace.
void run(const Peers& peers, const std::vector<Block>& blocks, int first, bool from_inputs,
         int steps, int reductions, const Reduction* reduction, FusionBuffer* scratch) {
  struct Step {
    const Piece* piece;
    bool reduces;
    bool finishes;
    bool is_passed_on;
  };
  const auto pieces = pieces_of(blocks);
  const int size = peers.size();
  std::vector<Step> all;
  std::vector<Arrivals::Place> places;
  for (int step = 0; step < steps; ++step) {
    const int block = (first - 1 - step % size + 2 * size) % size;
    const bool reduces = step < reductions;
    for (const auto& piece : pieces[static_cast<std::size_t>(block)]) {
      all.push_back({&piece, reduces, step == reductions - 1, step < steps - 1});
      places.push_back({reduces ? nullptr : piece.result, piece.bytes});
    }
  }

  Arrivals arrivals(peers, peers.previous(), std::move(places), scratch);
  Departures departures(peers);
  for (const auto& piece : pieces[static_cast<std::size_t>(first)]) {
    departures.send(peers.next(), from_inputs ? piece.input : piece.result, piece.bytes);
  }
  for (const auto& [piece, reduces, finishes, is_passed_on] : all) {
    const std::byte* const arrived = arrivals.next();
    if (reduces) reduce_piece(*reduction, *piece, arrived, true);
    if (finishes) finish_piece(*reduction, *piece);
    if (is_passed_on) departures.send(peers.next(), piece->result, piece->bytes);
  }
  departures.await();
}

}  // namespace

void ring_allreduce(const Peers& peers, const std::vector<Block>& blocks,
                    const Reduction& reduction, FusionBuffer& scratch) {
  const int steps = peers.size() - 1;
  run(peers, blocks, peers.previous(), true, 2 * steps, steps, &reduction, &scratch);
}

void ring_reduce_scatter(const Peers& peers, const std::vector<Block>& blocks,
                         const Reduction& reduction, FusionBuffer& scratch) {
  const int steps = peers.size() - 1;
  run(peers, blocks, peers.previous(), true, steps, steps, &reduction, &scratch);
}

void ring_allgather(const Peers& peers, const std::vector<Block>& blocks) {
  run(peers, blocks, peers.rank(), false, peers.size() - 1, 0, nullptr, nullptr);
}

}  // namespace hvd::runtime
