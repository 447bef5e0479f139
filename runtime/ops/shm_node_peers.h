// The ranks of a host in the memory that they share, as a part of operations of all hosts
// (node_peers.h). Each lane's rank adds up what the others have packed for it, straight into where
// its result belongs; n bytes, L lanes, chunks of w, P ranks:
//
//     reduce    each packs what is not of its own lane, reads (P - 1) / L n    n / w steps
//     gather    each packs its block, unpacks the others'                      longest block / w
//
// Elements are reduced in the order of the ranks, in chunks of whatever size: always the same
// bits.
#pragma once

#include "runtime/ops/node_peers.h"
#include "runtime/ops/scatter_list.h"
#include "runtime/shm/shm_group.h"

namespace hvd::runtime {

class ShmNodePeers final : public NodePeers {
 public:
  explicit ShmNodePeers(ShmCollective& collective) : collective_(collective) {}

  void reduce(const std::vector<Block>& lanes, const Reduction& reduction) override;
  void gather(const std::vector<Block>& blocks) override;
  void reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                       ReduceFunction function) override;
  void broadcast_from_first(void* data, std::size_t bytes) override;

 private:
  using Parts = ScatterList<const Part*>;
  // `first_is_late`: the first rank was busy elsewhere, and the others wait for it alone.
  void gather(const std::vector<Block>& blocks, bool first_is_late);
  // [begin, begin + step) of each lane but the own, one after another, into the own chunk.
  void pack_others(const std::vector<Parts>& lanes, std::size_t begin, std::size_t step) const;
  // [begin, begin + bytes) of the own lane; where that is in the others' chunks: `offset`.
  void reduce_own(const Parts& lane, std::size_t begin, std::size_t bytes, std::size_t offset,
                  const Reduction& reduction) const;

  ShmCollective& collective_;
};

}  // namespace hvd::runtime
