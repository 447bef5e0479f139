#include "runtime/ops/halving.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/ops/pieces.h"

namespace hvd::runtime {
namespace {

// Neighbouring blocks, by their numbers.
struct BlockRange {
  int begin;
  int count;
};

class Halving {
 public:
  Halving(const Peers& peers, const std::vector<Block>& blocks, const Reduction& reduction,
          FusionBuffer& scratch)
      : peers_(peers),
        reduction_(reduction),
        scratch_(scratch),
        pieces_(pieces_of(blocks)),
        departures_(peers) {}

  void reduce_scatter();
  void gather();

 private:
  std::vector<Piece> pieces_in(BlockRange blocks) const;

  const Peers& peers_;
  const Reduction& reduction_;
  FusionBuffer& scratch_;
  std::vector<std::vector<Piece>> pieces_;  // of each block
  Departures departures_;
};

std::vector<Piece> Halving::pieces_in(BlockRange blocks) const {
  std::vector<Piece> pieces;
  for (int block = blocks.begin; block < blocks.begin + blocks.count; ++block) {
    const auto& more = pieces_[static_cast<std::size_t>(block)];
    pieces.insert(pieces.end(), more.begin(), more.end());
  }
  return pieces;
}

void Halving::reduce_scatter() {
  BlockRange own{0, peers_.size()};
  while (own.count > 1) {
    const bool is_first = own.count == peers_.size();
    const int half = own.count / 2;
    const bool is_last = half == 1;
    const int partner = peers_.rank() ^ half;
    BlockRange given{own.begin + half, half};
    own.count = half;
    if (partner < peers_.rank()) std::swap(given.begin, own.begin);

    const auto kept = pieces_in(own);
    std::vector<Arrivals::Place> places;
    for (const auto& piece : kept) places.push_back({nullptr, piece.bytes});
    Arrivals arrivals(peers_, partner, std::move(places), &scratch_);
    for (const auto& piece : pieces_in(given)) {
      departures_.send(partner, is_first ? piece.input : piece.result, piece.bytes);
    }
    for (const auto& piece : kept) {
      reduce_piece(reduction_, piece, arrivals.next(), is_first);
      if (is_last) finish_piece(reduction_, piece);
    }
  }
  // The gathering overwrites the pieces that were given away.
  departures_.await();
}

void Halving::gather() {
  BlockRange own{peers_.rank(), 1};
  while (own.count < peers_.size()) {
    const int partner = peers_.rank() ^ own.count;
    const BlockRange others{own.begin ^ own.count, own.count};
    const auto missing = pieces_in(others);
    std::vector<Arrivals::Place> places;
    for (const auto& piece : missing) places.push_back({piece.result, piece.bytes});
    Arrivals arrivals(peers_, partner, std::move(places), nullptr);
    for (const auto& piece : pieces_in(own)) {
      departures_.send(partner, piece.result, piece.bytes);
    }
    for (std::size_t i = 0; i < missing.size(); ++i) arrivals.next();
    own = {std::min(own.begin, others.begin), 2 * own.count};
  }
  departures_.await();
}

}  // namespace

bool can_halve(int ranks) { return ranks > 1 && std::has_single_bit(static_cast<unsigned>(ranks)); }

void halving_allreduce(const Peers& peers, const std::vector<Block>& blocks,
                       const Reduction& reduction, FusionBuffer& scratch) {
  Halving halving(peers, blocks, reduction, scratch);
  halving.reduce_scatter();
  halving.gather();
}

}  // namespace hvd::runtime
