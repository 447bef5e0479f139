#include "runtime/ops/direct.h"

#include <deque>
#include <utility>

#include "runtime/ops/pieces.h"

namespace hvd::runtime {
namespace {

using Pieces = std::vector<std::vector<Piece>>;  // of each block

const std::vector<Piece>& pieces_at(const Pieces& pieces, int rank) {
  return pieces[static_cast<std::size_t>(rank)];
}

void reduce_scatter(const Peers& peers, const Pieces& pieces, const Reduction& reduction,
                    FusionBuffer& scratch) {
  const auto& own = pieces_at(pieces, peers.rank());
  std::size_t own_bytes = 0;
  for (const auto& piece : own) own_bytes += piece.bytes;

  std::byte* at = scratch.reserve(own_bytes * static_cast<std::size_t>(peers.size() - 1));
  std::deque<Arrivals> arrivals;  // of each other rank
  for (int distance = 1; distance < peers.size(); ++distance) {
    std::vector<Arrivals::Place> places;
    for (const auto& piece : own) {
      places.push_back({at, piece.bytes});
      at += piece.bytes;
    }
    arrivals.emplace_back(peers, peers.previous(distance), std::move(places), nullptr);
  }

  // Each rank begins with its next one, so that the first messages do not all go to one rank.
  Departures departures(peers);
  for (int distance = 1; distance < peers.size(); ++distance) {
    const int to = peers.next(distance);
    for (const auto& piece : pieces_at(pieces, to)) {
      departures.send(to, piece.input, piece.bytes);
    }
  }

  for (const auto& piece : own) {
    bool is_first = true;
    for (auto& from_one : arrivals) {
      reduce_piece(reduction, piece, from_one.next(), is_first);
      is_first = false;
    }
    finish_piece(reduction, piece);
  }
  departures.await();
}

void allgather(const Peers& peers, const Pieces& pieces) {
  std::deque<Arrivals> arrivals;  // of each other rank
  for (int distance = 1; distance < peers.size(); ++distance) {
    const int from = peers.previous(distance);
    std::vector<Arrivals::Place> places;
    for (const auto& piece : pieces_at(pieces, from)) places.push_back({piece.result, piece.bytes});
    arrivals.emplace_back(peers, from, std::move(places), nullptr);
  }

  Departures departures(peers);
  for (int distance = 1; distance < peers.size(); ++distance) {
    for (const auto& piece : pieces_at(pieces, peers.rank())) {
      departures.send(peers.next(distance), piece.result, piece.bytes);
    }
  }

  for (int distance = 1; distance < peers.size(); ++distance) {
    auto& from_one = arrivals[static_cast<std::size_t>(distance - 1)];
    const std::size_t count = pieces_at(pieces, peers.previous(distance)).size();
    for (std::size_t i = 0; i < count; ++i) from_one.next();
  }
  departures.await();
}

}  // namespace

void direct_allreduce(const Peers& peers, const std::vector<Block>& blocks,
                      const Reduction& reduction, FusionBuffer& scratch) {
  const auto pieces = pieces_of(blocks);
  reduce_scatter(peers, pieces, reduction, scratch);
  allgather(peers, pieces);
}

void direct_reduce_scatter(const Peers& peers, const std::vector<Block>& blocks,
                           const Reduction& reduction, FusionBuffer& scratch) {
  reduce_scatter(peers, pieces_of(blocks), reduction, scratch);
}

void direct_allgather(const Peers& peers, const std::vector<Block>& blocks) {
  allgather(peers, pieces_of(blocks));
}

}  // namespace hvd::runtime
