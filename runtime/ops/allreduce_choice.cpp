#include "runtime/ops/allreduce_choice.h"

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
// Doubling receives all of the data in each step, into memory of its own.
constexpr std::size_t kMostScratch = std::size_t{32} << 20;

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

  Nanoseconds time(AllreduceAlgorithm algorithm, std::uint64_t bytes) const {
    const std::uint64_t block = bytes / hosts;
    const std::uint64_t piece = std::min<std::uint64_t>(block, kPieceBytes);
    switch (algorithm) {
      case AllreduceAlgorithm::doubling:
        return doublings * (latency() + sending(bytes) + adding(bytes));
      case AllreduceAlgorithm::halving:
        return 2 * doublings * latency() + sending(2 * (bytes - block)) + doublings * adding(piece);
      case AllreduceAlgorithm::ring:
        return latency() + 2 * (hosts - 1) * std::max(sending(block), latency() + sending(piece));
    }
    return 0;
  }
};

}  // namespace

AllreduceAlgorithm choose_allreduce(const AllreduceRanks& ranks, std::size_t bytes,
                                    const LinkSpeed& speed, std::size_t few_steps_bytes) {
  if (bytes <= few_steps_bytes) return AllreduceAlgorithm::doubling;
  auto best = AllreduceAlgorithm::ring;
  if (speed.round_trip.count() == 0) return best;
  const Estimate estimate(speed, ranks.hosts);
  Nanoseconds shortest = estimate.time(best, bytes);
  const auto consider = [&](AllreduceAlgorithm algorithm) {
    const Nanoseconds time = estimate.time(algorithm, bytes);
    if (time >= shortest) return;
    shortest = time;
    best = algorithm;
  };
  if (can_halve(ranks.hosts)) consider(AllreduceAlgorithm::halving);
  // Where a host has several ranks, doubling would leave all the adding and sending to one of them.
  if (ranks.has_one_each && speed.megabytes_per_second > 0 &&
      bytes <= kMostScratch / estimate.doublings) {
    consider(AllreduceAlgorithm::doubling);
  }
  return best;
}

Transfer transfer_of(AllreduceAlgorithm algorithm, int hosts, std::size_t bytes,
                     const LinkSpeed& speed, Duration taken) {
  const Estimate estimate(speed, hosts);
  Transfer transfer{2 * (bytes - bytes / estimate.hosts), {}};
  Nanoseconds exposed = 0;  // what was neither sending nor receiving
  switch (algorithm) {
    case AllreduceAlgorithm::doubling:
      transfer.bytes = bytes * estimate.doublings;
      exposed = estimate.doublings * (estimate.latency() + Estimate::adding(bytes));
      break;
    case AllreduceAlgorithm::halving:
      exposed = 2 * estimate.doublings * estimate.latency();
      break;
    case AllreduceAlgorithm::ring: {
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
