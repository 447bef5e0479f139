#include "runtime/negotiation/lane_plan.h"

#include <algorithm>

#include "runtime/lane/lane.h"

namespace hvd::runtime {
namespace {

constexpr std::uint32_t kMostNeeded = 1024;

}  // namespace

bool LanePlan::fits(const Request& request) {
  if (request.kind != Kind::allreduce || !request.on_host || !request.group.empty() ||
      request.op == ReduceOp::adasum || request.compression != Compression::none ||
      request.tree != 0) {
    return false;
  }
  const std::size_t bytes = Lane::payload_bytes(request);
  return bytes > 0 && bytes <= Lane::kMostBytes;
}

std::vector<LaneSpot> LanePlan::give(const WireResponse& wire,
                                     const std::vector<SharedTensor>& tensors, std::size_t ranks) {
  std::vector<LaneSpot> spots;
  if (!wire.lanes || !wire.joined.empty() || ranks < 2) return spots;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Request& request = tensors[i]->request;
    if (!wire.tensors[i].id || !fits(request)) continue;
    Tensor* const tensor = find_or_add(request, ranks);
    if (tensor == nullptr || ++tensor->requests < tensor->needed) continue;
    tensor->requests = 0;
    tensor->needed = std::min(2 * tensor->needed, kMostNeeded);
    spots.resize(tensors.size());
    spots[i] = tensor->spot;
  }
  return spots;
}

LanePlan::Tensor* LanePlan::find_or_add(const Request& request, std::size_t ranks) {
  const std::size_t room = Lane::room_for(Lane::payload_bytes(request));
  const auto known = tensors_.find(view_of(request));
  const bool is_known = known != tensors_.end();
  if (is_known && known->second.spot.room >= room) return &known->second;

  const std::size_t bytes = 2 * room * ranks;
  if (lanes_ == ShmLayout::kLanes || bytes_ + bytes > ShmLayout::lane_bytes(world_size_)) {
    return nullptr;
  }
  Tensor& tensor = is_known ? known->second : tensors_[key_of(request)];
  tensor.spot = {lanes_++, bytes_, room};
  bytes_ += bytes;
  return &tensor;
}

void LanePlan::set_removed(int process_set) {
  std::erase_if(tensors_, [&](const auto& item) { return item.first.process_set == process_set; });
}

}  // namespace hvd::runtime
