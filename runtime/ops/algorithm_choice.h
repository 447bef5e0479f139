// Which algorithm an operation between hosts takes. Pure: all ranks must come to the same.
//
// Up to `few_steps_bytes` an allreduce is always doubled, which was measured to be the fastest
// where the latency is that of processors and not of a network. Beyond that the estimated times
// decide. Of P hosts, n bytes, a latency of a for each step, a bandwidth of b, pieces of p bytes
// that are passed on as they come, and c bytes a second that are added up:
//
//     doubling   log2 P (a + n / b + n / c)
//     halving    2 log2 P a + (P - 1) / P 2 n / b + log2 P p / c
//     direct     2 (a + (P - 1) m) + (P - 1) / P (2 n / b + n / c)
//     ring       a + 2 (P - 1) max(n / (P b), a + p / b)
//
// Doubling takes two steps more if P is not a power of two, and halving is only there if it is. The
// ring hides its latency behind blocks that are long enough. Directly, each rank sends P - 1
// messages at once, which cost m each; the network has to bear that, so it is only for few hosts
// and where it saves much. The terms are those of R. Thakur, R. Rabenseifner and W. Gropp,
// "Optimization of collective communication operations in MPICH", 2005.
#pragma once

#include <cstddef>

#include "runtime/core/link_speed.h"

namespace hvd::runtime {

enum class Algorithm { doubling, halving, direct, ring };

struct RanksOfHosts {
  int hosts = 2;             // at least two
  bool has_one_each = true;  // else the ranks of a host divide what goes between hosts
};

// `bytes`: of one rank. While the round trip is not known, what is longer than `few_steps_bytes`
// takes the ring; while the bandwidth is not known, doubling is not considered beyond that.
Algorithm choose_allreduce(const RanksOfHosts& ranks, std::size_t bytes, const LinkSpeed& speed,
                           std::size_t few_steps_bytes);
// Whether an allgather or a reducescatter of so many bytes in all goes directly; else it takes the
// ring, as it does while the round trip is not known.
bool goes_directly(int hosts, std::size_t bytes, const LinkSpeed& speed);

// The bytes that one host sends in an allreduce, and how much of the time that the allreduce took
// was spent on sending them.
struct Transfer {
  std::size_t bytes = 0;
  Duration taken{};
};
Transfer transfer_of(Algorithm algorithm, int hosts, std::size_t bytes, const LinkSpeed& speed,
                     Duration taken);

}  // namespace hvd::runtime
