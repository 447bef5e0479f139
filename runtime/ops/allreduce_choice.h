// Which algorithm an allreduce between hosts takes. Pure: all ranks must come to the same.
//
// Up to `few_steps_bytes` it is always doubling, which was measured to be the fastest where the
// latency is that of processors and not of a network. Beyond that the estimated times decide. Of P
// hosts, n bytes, a latency of a for each step, a bandwidth of b, pieces of p bytes that are passed
// on as they come, and c bytes a second that are added up:
//
//     doubling   log2 P (a + n / b + n / c)
//     halving    2 log2 P a + (P - 1) / P 2 n / b + log2 P p / c
//     ring       a + 2 (P - 1) max(n / (P b), a + p / b)
//
// Doubling takes two steps more if P is not a power of two, and halving is only there if it is. The
// ring hides its latency behind blocks that are long enough. The terms are those of R. Thakur, R.
// Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH", 2005.
#pragma once

#include <cstddef>

#include "runtime/core/link_speed.h"

namespace hvd::runtime {

enum class AllreduceAlgorithm { doubling, halving, ring };

struct AllreduceRanks {
  int hosts = 2;             // at least two
  bool has_one_each = true;  // else the ranks of a host divide what goes between hosts
};

// `bytes`: of one rank. While the round trip is not known, what is longer than `few_steps_bytes`
// takes the ring; while the bandwidth is not known, doubling is not considered beyond that.
AllreduceAlgorithm choose_allreduce(const AllreduceRanks& ranks, std::size_t bytes,
                                    const LinkSpeed& speed, std::size_t few_steps_bytes);

// The bytes that one host sends in an allreduce, and how much of the time that the allreduce took
// was spent on sending them.
struct Transfer {
  std::size_t bytes = 0;
  Duration taken{};
};
Transfer transfer_of(AllreduceAlgorithm algorithm, int hosts, std::size_t bytes,
                     const LinkSpeed& speed, Duration taken);

}  // namespace hvd::runtime
