#include "runtime/ops/algorithms.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/machine/bulk_copy.h"

namespace hvd::runtime {
namespace {

int floor_power_of_two(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }

}  // namespace

void doubling_allreduce(const Peers& peers, void* data, std::size_t elements,
                        std::size_t element_size, ReduceFunction reduce, FusionBuffer& scratch) {
  const std::size_t bytes = elements * element_size;
  if (bytes == 0) return;
  const int core = floor_power_of_two(peers.size());
  const int rank = peers.rank();
  auto own = peers.memory(data, bytes);
  if (rank >= core) {
    own.send(rank - core, 0, bytes);
    own.wait_all_sent();
    own.receive(rank - core, 0, bytes);
    own.wait_received();
    return;
  }
  // The data of each step arrives at a place of its own, so that all of it can be expected now.
  std::vector<int> partners;
  if (rank + core < peers.size()) partners.push_back(rank + core);
  const bool has_extra = !partners.empty();
  for (int distance = 1; distance < core; distance *= 2) partners.push_back(rank ^ distance);
  std::byte* const arrivals = scratch.reserve(partners.size() * bytes);
  std::vector<MessageMemory> places;
  places.reserve(partners.size());
  for (std::size_t i = 0; i < partners.size(); ++i) {
    places.push_back(peers.memory(arrivals + i * bytes, bytes));
    places.back().receive(partners[i], 0, bytes);
  }
  for (std::size_t i = 0; i < partners.size(); ++i) {
    const int partner = partners[i];
    const bool is_extra = has_extra && i == 0;
    if (!is_extra) own.send(partner, 0, bytes);
    places[i].wait_received();
    own.wait_all_sent();
    const std::byte* const arrived = arrivals + i * bytes;
    if (partner > rank) {
      reduce(data, data, arrived, elements);
    } else {
      reduce(data, arrived, data, elements);
    }
  }
  if (has_extra) {
    own.send(rank + core, 0, bytes);
    own.wait_all_sent();
  }
}

void tree_broadcast(const Peers& peers, void* data, std::size_t bytes, int root) {
  if (bytes == 0) return;
  const int size = peers.size();
  const int from_root = (peers.rank() - root + size) % size;
  const auto rank_of = [&](int relative) { return (relative + root) % size; };
  // The lowest set bit gives the parent; the bits below it give the children.
  int mask = 1;
  while (mask < size && (from_root & mask) == 0) mask *= 2;
  std::vector<int> children;  // those with the largest subtrees first
  for (int bit = mask / 2; bit > 0; bit /= 2) {
    if (from_root + bit < size) children.push_back(rank_of(from_root + bit));
  }
  const std::size_t pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
  const auto offset = [](std::size_t i) { return i * kPieceBytes; };
  const auto length = [&](std::size_t i) { return std::min(kPieceBytes, bytes - offset(i)); };
  auto memory = peers.memory(data, bytes);
  const int parent = from_root == 0 ? -1 : rank_of(from_root - mask);
  std::size_t expected = 0;
  const auto expect_until = [&](std::size_t end) {
    for (; expected < std::min(end, pieces); ++expected) {
      memory.receive(parent, offset(expected), length(expected));
    }
  };
  for (std::size_t i = 0; i < pieces; ++i) {
    if (parent >= 0) {
      expect_until(i + kAhead);
      memory.wait_received();  // the oldest one: peers.h
    }
    for (const int child : children) memory.send(child, offset(i), length(i));
  }
  memory.wait_all_sent();
}

void barrier(const Peers& peers) {
  std::byte token{1};
  auto out = peers.memory(&token, 1);
  for (int distance = 1; distance < peers.size(); distance *= 2) {
    std::byte arrived{};
    auto in = peers.memory(&arrived, 1);
    in.receive(peers.previous(distance), 0, 1);
    out.send(peers.next(distance), 0, 1);
    in.wait_received();
  }
  out.wait_all_sent();
}

void exchange(const Peers& peers, std::span<const Extent> sends, std::span<const Extent> receives) {
  const auto at = [](std::span<const Extent> all, int rank) {
    return all[static_cast<std::size_t>(rank)];
  };
  std::vector<MessageMemory> arriving;
  for (int distance = 1; distance < peers.size(); ++distance) {
    const int from = peers.previous(distance);
    const auto [data, bytes] = at(receives, from);
    if (bytes == 0) continue;
    arriving.push_back(peers.memory(data, bytes));
    arriving.back().receive(from, 0, bytes);
  }
  std::vector<MessageMemory> leaving;
  for (int distance = 1; distance < peers.size(); ++distance) {
    const int to = peers.next(distance);
    const auto [data, bytes] = at(sends, to);
    if (bytes == 0) continue;
    leaving.push_back(peers.memory(data, bytes));
    leaving.back().send(to, 0, bytes);
  }
  const Extent out = at(sends, peers.rank());
  const Extent in = at(receives, peers.rank());
  if (in.bytes > 0 && out.data != in.data) bulk_copy(in.data, out.data, in.bytes);
  for (auto& memory : arriving) memory.wait_received();
  for (auto& memory : leaving) memory.wait_all_sent();
}

void gather_all(const Peers& peers, Extent own, std::span<const Extent> receives) {
  const std::vector<Extent> sends(static_cast<std::size_t>(peers.size()), own);
  exchange(peers, sends, receives);
}

}  // namespace hvd::runtime
