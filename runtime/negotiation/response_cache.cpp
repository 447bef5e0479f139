#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime {

bool ResponseCache::keeps(Kind kind) {
  switch (kind) {
    case Kind::allreduce:
    case Kind::broadcast:
    case Kind::allgather:
    case Kind::alltoall:
    case Kind::reducescatter:
      return true;
    case Kind::barrier:
    case Kind::join:
    case Kind::add_process_set:
    case Kind::remove_process_set:
    case Kind::send_recv:
      return false;
  }
  return false;
}

std::optional<CacheId> ResponseCache::find(const Request& request, int position) const {
  if (!keeps(request.kind)) return std::nullopt;
  const auto found = by_key_.find(view_of(request));
  if (found == by_key_.end()) return std::nullopt;

  const auto& tensor = *entries_.at(found->second).tensor;
  if (!is_ragged(request)) {
    return tensor.request == request ? std::optional(found->second) : std::nullopt;
  }

  const auto index = static_cast<std::size_t>(position);
  if (index >= tensor.first_extents.size() || tensor.request.shape.empty() ||
      tensor.first_extents[index] != request.shape.front()) {
    return std::nullopt;
  }
  Request as_agreed = request;
  as_agreed.shape.front() = tensor.request.shape.front();
  return tensor.request == as_agreed ? std::optional(found->second) : std::nullopt;
}

SharedTensor ResponseCache::get(CacheId id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.tensor;
}

SharedTensor ResponseCache::get(const TensorKeyView& key, CacheId* id) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  if (id != nullptr) *id = found->second;
  return entries_.at(found->second).tensor;
}

void ResponseCache::used(CacheId id) {
  const auto found = entries_.find(id);
  if (found != entries_.end()) by_use_.splice(by_use_.end(), by_use_, found->second.place);
}

bool ResponseCache::is_full_for(const std::vector<SharedTensor>& tensors) const {
  std::size_t size = entries_.size();
  for (const auto& tensor : tensors) {
    if (!keeps(tensor->request.kind) || has(*tensor)) continue;
    if (by_key_.find(view_of(tensor->request)) != by_key_.end()) return true;
    ++size;
  }
  return size > capacity_;
}

void ResponseCache::agreed(const SharedTensor& tensor, std::vector<EvictedTensor>& evicted) {
  if (capacity_ == 0 || !keeps(tensor->request.kind)) return;
  auto key = key_of(tensor->request);
  if (const auto old = by_key_.find(key); old != by_key_.end()) erase(old->second, evicted);
  while (entries_.size() >= capacity_) erase(by_use_.front(), evicted);
  const CacheId id = next_id_++;
  ids_[key.process_set].insert(id);
  by_key_.emplace(std::move(key), id);
  auto kept = std::make_shared<ResponseTensor>(*tensor);
  kept->cache_id = id;
  entries_.emplace(id, CachedTensor{std::move(kept), by_use_.insert(by_use_.end(), id)});
}

void ResponseCache::set_removed(int process_set, std::vector<EvictedTensor>& evicted) {
  const auto gone = ids_[process_set];
  gone.for_each([&](CacheId id) { erase(id, evicted); });
  ids_.erase(process_set);
}

void ResponseCache::erase(CacheId id, std::vector<EvictedTensor>& evicted) {
  const auto found = entries_.find(id);
  auto tensor = std::move(found->second.tensor);
  const auto key = by_key_.find(view_of(tensor->request));
  ids_.at(key->first.process_set).subtract(IntervalSet::of(id));
  by_key_.erase(key);
  by_use_.erase(found->second.place);
  entries_.erase(found);
  evicted.push_back({id, std::move(tensor)});
}

}  // namespace hvd::runtime
