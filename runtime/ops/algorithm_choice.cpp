#include "runtime/ops/algorithm_choice.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "runtime/ops/halving.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {
namespace {

// Whole numbers, so that ranks on different processors come to the same.
using Nanoseconds = std::uint64_t;

// The cost of a step besides the network: a send, a wake-up, a receive.
constexpr Nanoseconds kStep = 20'000;
constexpr std::uint64_t kAddedPerNanosecond = 4;    // bytes
constexpr std::uint64_t kUnknownBandwidth = 1'000;  // MB/s
constexpr Nanoseconds kMessage = 5'000;             // to begin one more message
// Doubling receives all of the data in each step, into memory of its own; so does what is reduced
// directly.
constexpr std::size_t kMostScratch = std::size_t{32} << 20;
// More hosts that send to one at the same time are more than the buffers of a switch may hold.
constexpr int kMostDirectHosts = 16;

// The steps of doubling; for two hosts more if there is no power of two of them.
std::uint64_t doublings_of(int hosts) {
  const unsigned steps = static_cast<unsigned>(std::bit_width(static_cast<unsigned>(hosts))) - 1;
  return can_halve(hosts) ? steps : steps + 2;
}

struct Estimate {
  const LinkSpeed& speed;
  std::uint64_t hosts;
  std::uint64_t doublings;

  Estimate(const LinkSpeed& links, int count)
      : speed(links), hosts(static_cast<std::uint64_t>(count)), doublings(doublings_of(count)) {}

  Nanoseconds latency() const {
    return static_cast<Nanoseconds>(speed.round_trip.count()) * 1'000 / 2 + kStep;
  }
  Nanoseconds sending(std::uint64_t bytes) const {
    const std::uint64_t known = speed.megabytes_per_second;
    return bytes * 1'000 / (known == 0 ? kUnknownBandwidth : known);
  }
  static Nanoseconds adding(std::uint64_t bytes) { return bytes / kAddedPerNanosecond; }

  Nanoseconds time(Algorithm algorithm, std::uint64_t bytes) const {
    const std::uint64_t block = bytes / hosts;
    const std::uint64_t piece = std::min<std::uint64_t>(block, kPieceBytes);
    switch (algorithm) {
      case Algorithm::doubling:
        return doublings * (latency() + sending(bytes) + adding(bytes));
      case Algorithm::halving:
        return 2 * doublings * latency() + sending(2 * (bytes - block)) + doublings * adding(piece);
      case Algorithm::direct:
        return 2 * at_once(bytes) + adding(bytes - block);
      case Algorithm::ring:
        return latency() + 2 * around(bytes);
    }
    return 0;
  }
  // One half of an allreduce: all blocks from and to each rank, directly and in a ring.
  Nanoseconds at_once(std::uint64_t bytes) const {
    return latency() + (hosts - 1) * kMessage + sending(bytes - bytes / hosts);
  }
  Nanoseconds around(std::uint64_t bytes) const {
    const std::uint64_t block = bytes / hosts;
    const std::uint64_t piece = std::min<std::uint64_t>(block, kPieceBytes);
    return (hosts - 1) * std::max(sending(block), latency() + sending(piece));
  }
};

bool can_be_direct(int hosts, std::size_t bytes) {
  return hosts > 2 && hosts <= kMostDirectHosts && bytes <= kMostScratch;
}

// A ring is the kindest to the network.
bool saves_much(Nanoseconds directly, Nanoseconds in_a_ring) {
  return directly + directly / 2 < in_a_ring;
}

}  // namespace

Algorithm choose_allreduce(const RanksOfHosts& ranks, std::size_t bytes, const LinkSpeed& speed,
                           std::size_t few_steps_bytes) {
  if (bytes <= few_steps_bytes) return Algorithm::doubling;
  auto best = Algorithm::ring;
  if (speed.round_trip.count() == 0) return best;
  const Estimate estimate(speed, ranks.hosts);
  Nanoseconds shortest = estimate.time(best, bytes);
  const auto consider = [&](Algorithm algorithm) {
    const Nanoseconds time = estimate.time(algorithm, bytes);
    if (time >= shortest) return;
    shortest = time;
    best = algorithm;
  };
  if (can_halve(ranks.hosts)) consider(Algorithm::halving);
  // Where a host has several ranks, doubling would leave all the adding and sending to one of them.
  if (ranks.has_one_each && speed.megabytes_per_second > 0 &&
      bytes <= kMostScratch / estimate.doublings) {
    consider(Algorithm::doubling);
  }
  if (can_be_direct(ranks.hosts, bytes) &&
      saves_much(estimate.time(Algorithm::direct, bytes), estimate.time(Algorithm::ring, bytes))) {
    consider(Algorithm::direct);
  }
  return best;
}

bool goes_directly(int hosts, std::size_t bytes, const LinkSpeed& speed) {
  if (speed.round_trip.count() == 0 || !can_be_direct(hosts, bytes)) return false;
  const Estimate estimate(speed, hosts);
  return saves_much(estimate.at_once(bytes), estimate.around(bytes));
}

Transfer transfer_of(Algorithm algorithm, int hosts, std::size_t bytes, const LinkSpeed& speed,
                     Duration taken) {
  const Estimate estimate(speed, hosts);
  Transfer transfer{2 * (bytes - bytes / estimate.hosts), {}};
  Nanoseconds exposed = 0;  // what was neither sending nor receiving
  switch (algorithm) {
    case Algorithm::doubling:
      transfer.bytes = bytes * estimate.doublings;
      exposed = estimate.doublings * (estimate.latency() + Estimate::adding(bytes));
      break;
    case Algorithm::halving:
      exposed = 2 * estimate.doublings * estimate.latency();
      break;
    case Algorithm::direct:
      exposed = 2 * estimate.latency() + Estimate::adding(bytes);
      break;
    case Algorithm::ring: {
      const std::uint64_t steps = 2 * (estimate.hosts - 1);
      const bool hides = taken > std::chrono::nanoseconds(2 * steps * estimate.latency());
      exposed = (hides ? 1 : steps) * estimate.latency();
      break;
    }
  }
  // The latency was measured at another time, so it does not explain more than half.
  transfer.taken = std::max<Duration>(taken - std::chrono::nanoseconds(exposed), taken / 2);
  return transfer;
}

}  // namespace hvd::runtime
