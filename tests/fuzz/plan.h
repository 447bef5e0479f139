// The plan of one iteration of the fuzzer: a world, and the collectives that its ranks run. A plan
// is generated from a seed, and can then be shrunk. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <hvd/types.h>

#include "runtime/core/config.h"
#include "runtime/core/request.h"

namespace hvd::fuzz {

struct WorldPlan {
  int size = 1;
  bool processes = false;  // else ranks are threads
  runtime::Transport transport = runtime::Transport::hvd;
  int sockets = 1;  // for each pair of ranks
  Protection protection = Protection::integrity;
  std::vector<int> host;     // of each rank
  std::vector<bool> shares;  // whether the rank wants shared memory
  std::optional<bool> hierarchical_allreduce;
  std::optional<bool> hierarchical_allgather;
  std::size_t chunk_bytes = std::size_t{256} << 10;
  std::size_t fusion_threshold = std::size_t{128} << 20;
  int cycle_us = 1'000;
  std::size_t cache_capacity = 1'024;
  bool deterministic = false;
  runtime::LinkSpeed links = {};  // between hosts; unknown: measured
};

// Some ranks of the world, ascending. Sets that are added at window 0 or later, and removed before
// a later one, are process sets; the first set of a plan is the world itself.
struct SetPlan {
  static constexpr int kFromTheStart = -1;
  std::vector<int> ranks;
  int added = kFromTheStart;
  std::optional<int> removed;
  bool lives_in(int window) const { return added <= window && (!removed || window < *removed); }
};

// One tensor, as on all members of the set. Positions are those in the set.
struct TensorPlan {
  std::vector<std::int64_t> rows;  // of each position; the first extent, if there is any
  std::vector<std::int64_t> row;   // the other extents
  bool scalar = false;             // no extents at all
  // alltoall: rows from one position to each; empty: even shares. Remaining rows are not sent.
  std::vector<std::vector<std::int64_t>> splits;
};

// Which positions have their tensors in the shared heap, where they may be reduced where they lie.
enum class InHeap { none, most, all };

struct CallPlan {
  int number = 0;  // determines the contents
  std::string name;
  runtime::Kind kind = runtime::Kind::allreduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  Compression compression = Compression::none;
  double prescale = 1.0;
  double postscale = 1.0;
  std::size_t set = 0;  // of Plan::sets
  int root = 0;         // position in the set
  bool in_place = false;
  InHeap in_heap = InHeap::none;    // the outputs
  bool allocated = false;           // the output is allocated by a callback
  int leaves = 0;                   // the most of a rank, along a tree of additions; 0: none
  std::vector<TensorPlan> tensors;  // several: a group

  bool is_in_heap(int position) const {
    return in_heap == InHeap::all || (in_heap == InHeap::most && (number + position) % 3 != 0);
  }
  bool reduces() const {
    return kind == runtime::Kind::allreduce || kind == runtime::Kind::reducescatter;
  }
};

// Calls that are in flight at the same time, in an order that differs between ranks.
struct Window {
  std::vector<CallPlan> calls;
  std::vector<int> joined;  // ranks that have joined for it
  bool skewed = false;      // ranks begin at different times
};

struct Plan {
  std::uint64_t seed = 0;
  WorldPlan world;
  std::vector<SetPlan> sets;
  std::vector<Window> windows;
};

Plan plan_of(std::uint64_t seed);

// "measured", or "2000 us, 1000 MB/s".
std::string links_text(const runtime::LinkSpeed& links);
// The plan without its windows, and one call of it.
std::string world_text(const Plan& plan);
std::string call_text(const Plan& plan, const CallPlan& call);
// The whole plan, a line for the world and one for each call.
std::string text_of(const Plan& plan);

// Sizes in bytes at which the code switches between algorithms: sizes around these are likely in a
// plan.
const std::vector<std::size_t>& limits();

}  // namespace hvd::fuzz
