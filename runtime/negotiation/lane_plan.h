// Which tensors have which lane (lane/lane.h). Every rank keeps the same plan: it changes by
// responses alone, in their order, so that a response says only that lanes may be given.
//
// A tensor gets a lane when all ranks have requested it by id, as one that they have agreed on
// before. Its lane stays its own: when the ranks have left it and negotiate again, the same one is
// given to them, since by then each of them has left. Each time it takes twice as many requests, as
// a tensor that does not stay in its lane only pays for it. Lanes are not given to other tensors:
// nobody knows when the last rank has left one.
//
// A pure value; for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/core/request.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime {

class LanePlan {
 public:
  explicit LanePlan(int world_size) : world_size_(world_size) {}

  // Whether a tensor of this request may have a lane.
  static bool fits(const Request& request);
  // The lanes that the response gives to its tensors, in a set of so many ranks; empty: none.
  std::vector<LaneSpot> give(const WireResponse& wire, const std::vector<SharedTensor>& tensors,
                             std::size_t ranks);
  void set_removed(int process_set);

 private:
  struct Tensor {
    LaneSpot spot;
    std::uint32_t requests = 0;  // without a lane
    std::uint32_t needed = 1;    // of them, for the next time that it gets the lane
  };
  // Null: there is no room for more.
  Tensor* find_or_add(const Request& request, std::size_t ranks);

  int world_size_;
  int lanes_ = 0;          // so many have been given
  std::size_t bytes_ = 0;  // and so many of their payloads
  std::unordered_map<TensorKey, Tensor, TensorKeyHash, TensorKeyEqual> tensors_;
};

}  // namespace hvd::runtime
