// What the ranks of one host do among themselves while all hosts work together (hierarchy.h): with
// messages, or in the memory that they share (shm_mates.h). The hosts need not do it in the same
// way: what goes from host to host is the same.
//
// A view, for one operation and one thread. All mates make it and call the same functions of it, in
// the same order. Lanes and blocks are lists with one for each mate, empty if it has none; they
// have the same parts of the same sizes on all mates. What fails is thrown, as peers.h has it.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/core/arithmetic.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"
#include "runtime/ops/ring.h"

namespace hvd::runtime {

class Mates {
 public:
  virtual ~Mates() = default;
  // The results of the own lane become the reduction of what all have in its inputs. Those of other
  // lanes may hold something in between.
  virtual void reduce(const std::vector<Block>& lanes, const Reduction& reduction) = 0;
  // Each block's results go from its rank to all.
  virtual void gather(const std::vector<Block>& blocks) = 0;
  // The same of little, to and from the first of them: data becomes what all have in it, reduced.
  virtual void reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                               ReduceFunction function) = 0;
  virtual void tell_all(void* data, std::size_t bytes) = 0;
};

class MessagingMates final : public Mates {
 public:
  // `mates`: one or several; `scratch` is used for what arrives.
  MessagingMates(const Peers& mates, FusionBuffer& scratch) : mates_(mates), scratch_(scratch) {}

  void reduce(const std::vector<Block>& lanes, const Reduction& reduction) override;
  void gather(const std::vector<Block>& blocks) override;
  void reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                       ReduceFunction function) override;
  void tell_all(void* data, std::size_t bytes) override;

 private:
  Peers mates_;
  FusionBuffer& scratch_;
};

}  // namespace hvd::runtime
