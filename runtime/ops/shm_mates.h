// The ranks of a host in the memory that they share, as a part of operations of all hosts
// (mates.h). Each lane's rank adds up what the others have packed for it, straight into where its
// result belongs; n bytes, L lanes, windows of w, P ranks:
//
//     reduce    each packs what is not of its own lane, reads (P - 1) / L n    n / w steps
//     gather    each packs its block, unpacks the others'                      longest block / w
//
// Elements are reduced in the order of the ranks, in windows of whatever size: always the same
// bits.
#pragma once

#include "runtime/ops/mates.h"
#include "runtime/ops/strip.h"
#include "runtime/shm/meeting.h"

namespace hvd::runtime {

class ShmMates final : public Mates {
 public:
  explicit ShmMates(Meeting& meeting) : meeting_(meeting) {}

  void reduce(const std::vector<Block>& lanes, const Reduction& reduction) override;
  void gather(const std::vector<Block>& blocks) override;
  void reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                       ReduceFunction function) override;
  void tell_all(void* data, std::size_t bytes) override;

 private:
  using Parts = Strip<const Part*>;
  // `first_is_late`: the first rank was busy elsewhere, and the others wait for it alone.
  void gather(const std::vector<Block>& blocks, bool first_is_late);
  // [begin, begin + step) of each lane but the own, one after another, into the own window.
  void pack_others(const std::vector<Parts>& lanes, std::size_t begin, std::size_t step) const;
  // [begin, begin + bytes) of the own lane; where that is in the others' windows: `offset`.
  void reduce_own(const Parts& lane, std::size_t begin, std::size_t bytes, std::size_t offset,
                  const Reduction& reduction) const;

  Meeting& meeting_;
};

}  // namespace hvd::runtime
