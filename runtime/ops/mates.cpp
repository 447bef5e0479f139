#include "runtime/ops/mates.h"

#include "runtime/ops/algorithms.h"

namespace hvd::runtime {

void MessagingMates::reduce(const std::vector<Block>& lanes, const Reduction& reduction) {
  if (mates_.size() > 1) ring_reduce_scatter(mates_, lanes, reduction, scratch_);
}

void MessagingMates::gather(const std::vector<Block>& blocks) {
  if (mates_.size() > 1) ring_allgather(mates_, blocks);
}

void MessagingMates::reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                                     ReduceFunction function) {
  const std::size_t bytes = elements * element_size;
  if (mates_.rank() > 0) {
    auto own = mates_.memory(data, bytes);
    own.send(0, 0, bytes);
    own.wait_all_sent();
    return;
  }
  const auto others = static_cast<std::size_t>(mates_.size() - 1);
  std::byte* const arrivals = scratch_.reserve(others * bytes);
  std::vector<MessageMemory> places;
  for (std::size_t i = 0; i < others; ++i) {
    places.push_back(mates_.memory(arrivals + i * bytes, bytes));
    places.back().receive(static_cast<int>(i) + 1, 0, bytes);
  }
  for (std::size_t i = 0; i < others; ++i) {
    places[i].wait_received();
    function(data, data, arrivals + i * bytes, elements);
  }
}

void MessagingMates::tell_all(void* data, std::size_t bytes) {
  if (mates_.size() > 1) tree_broadcast(mates_, data, bytes, 0);
}

}  // namespace hvd::runtime
