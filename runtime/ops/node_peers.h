// The part of an operation of all hosts that the ranks of one host do among themselves
// (hierarchy.h): with messages, or in the memory that they share (shm_node_peers.h). The hosts need
// not do it in the same way: what goes from host to host is the same.
//
// A view, for one operation and one thread. All node_peers make it and call the same functions of
// it, in the same order. Lanes and blocks are lists with one for each peer, empty if it has none;
// they have the same parts of the same sizes on all of them. Errors are thrown, as peers.h has it.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/core/arithmetic.h"
#include "runtime/ops/blocks.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

class NodePeers {
 public:
  virtual ~NodePeers() = default;
  // The results of the own lane become the reduction of what all have in its inputs. Those of other
  // lanes may hold something in between.
  virtual void reduce(const std::vector<Block>& lanes, const Reduction& reduction) = 0;
  // Each block's results go from its rank to all.
  virtual void gather(const std::vector<Block>& blocks) = 0;
  // The same for little data, to and from the first rank: data becomes the reduction of all.
  virtual void reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                               ReduceFunction function) = 0;
  virtual void broadcast_from_first(void* data, std::size_t bytes) = 0;
};

class MessagingNodePeers final : public NodePeers {
 public:
  // `node_peers`: one or several; `scratch` is used for what arrives.
  MessagingNodePeers(const Peers& node_peers, FusionBuffer& scratch)
      : node_peers_(node_peers), scratch_(scratch) {}

  void reduce(const std::vector<Block>& lanes, const Reduction& reduction) override;
  void gather(const std::vector<Block>& blocks) override;
  void reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                       ReduceFunction function) override;
  void broadcast_from_first(void* data, std::size_t bytes) override;

 private:
  Peers node_peers_;
  FusionBuffer& scratch_;
};

}  // namespace hvd::runtime
