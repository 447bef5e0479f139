#include "runtime/ops/node_peers.h"

#include "runtime/ops/algorithms.h"
#include "runtime/ops/ring.h"

namespace hvd::runtime {

void MessagingNodePeers::reduce(const std::vector<Block>& lanes, const Reduction& reduction) {
  if (node_peers_.size() > 1) ring_reduce_scatter(node_peers_, lanes, reduction, scratch_);
}

void MessagingNodePeers::gather(const std::vector<Block>& blocks) {
  if (node_peers_.size() > 1) ring_allgather(node_peers_, blocks);
}

void MessagingNodePeers::reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                                         ReduceFunction function) {
  const std::size_t bytes = elements * element_size;
  if (node_peers_.rank() > 0) {
    auto own = node_peers_.memory(data, bytes);
    own.send(0, 0, bytes);
    own.wait_all_sent();
    return;
  }
  const auto others = static_cast<std::size_t>(node_peers_.size() - 1);
  std::byte* const arrivals = scratch_.reserve(others * bytes);
  std::vector<MessageMemory> places;
  for (std::size_t i = 0; i < others; ++i) {
    places.push_back(node_peers_.memory(arrivals + i * bytes, bytes));
    places.back().receive(static_cast<int>(i) + 1, 0, bytes);
  }
  for (std::size_t i = 0; i < others; ++i) {
    places[i].wait_received();
    function(data, data, arrivals + i * bytes, elements);
  }
}

void MessagingNodePeers::broadcast_from_first(void* data, std::size_t bytes) {
  if (node_peers_.size() > 1) tree_broadcast(node_peers_, data, bytes, 0);
}

}  // namespace hvd::runtime
