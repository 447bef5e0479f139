// Tensors of earlier responses, under short ids: a rank that requests the same tensor again sends
// the id only, and if all ranks do, the response consists of ids, too.
//
// Every rank keeps the same cache: it changes by responses alone, in their order, which is the same
// on all ranks. Ids ascend and are never reused, so that an id which is still under way when its
// entry has been evicted is not mistaken for another. An entry is evicted when the cache is full
// and it was not used for the longest time, when something else is agreed about its tensor, or with
// its process set; a rank whose request by this id is unanswered requests the tensor again, in
// full.
//
// A pure value; for one thread.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "runtime/core/request.h"
#include "runtime/negotiation/process_sets.h"

namespace hvd::runtime {

using CacheId = IntervalSet::Value;

// The key of a tensor: the same name in two process sets means two tensors.
struct TensorKey {
  int process_set = kGlobalSet;
  std::string name;
  friend bool operator==(const TensorKey&, const TensorKey&) = default;
  friend bool operator<(const TensorKey& a, const TensorKey& b) {
    return std::tie(a.process_set, a.name) < std::tie(b.process_set, b.name);
  }
};
inline TensorKey key_of(const Request& request) { return {negotiated_in(request), request.name}; }

// The same without a copy of the name: lookups for every tensor of every step use it.
struct TensorKeyView {
  int process_set = kGlobalSet;
  std::string_view name;
  TensorKeyView(int set, std::string_view of) : process_set(set), name(of) {}
  // NOLINTNEXTLINE(google-explicit-constructor): every key can be looked at
  TensorKeyView(const TensorKey& key) : process_set(key.process_set), name(key.name) {}
};
inline TensorKeyView view_of(const Request& request) {
  return {negotiated_in(request), request.name};
}
struct TensorKeyHash {
  using is_transparent = void;
  std::size_t operator()(const TensorKeyView& key) const {
    return std::hash<std::string_view>()(key.name) * 31 + static_cast<std::size_t>(key.process_set);
  }
};
struct TensorKeyEqual {
  using is_transparent = void;
  bool operator()(const TensorKeyView& a, const TensorKeyView& b) const {
    return a.process_set == b.process_set && a.name == b.name;
  }
};

// The first extents of allgather and alltoall may differ between ranks.
inline bool is_ragged(const Request& request) {
  return (request.kind == Kind::allgather || request.kind == Kind::alltoall) &&
         !request.shape.empty();
}

// An evicted id and its tensor.
struct EvictedTensor {
  CacheId id = 0;
  SharedTensor tensor;
};

class ResponseCache {
 public:
  explicit ResponseCache(std::size_t capacity) : capacity_(capacity) {}

  // Whether responses of this kind are cached at all.
  static bool keeps(Kind kind);

  // The id that is equivalent to this request of the rank at `position` of its set.
  std::optional<CacheId> find(const Request& request, int position) const;
  // Null: no such entry.
  SharedTensor get(CacheId id) const;
  SharedTensor get(const TensorKeyView& key, CacheId* id = nullptr) const;
  // Whether the cache keeps this very object.
  bool has(const ResponseTensor& tensor) const {
    if (tensor.cache_id == ResponseTensor::kNotCached) return false;
    const auto found = entries_.find(tensor.cache_id);
    return found != entries_.end() && found->second.tensor.get() == &tensor;
  }
  // The ids in use, by the process set whose members negotiate about them.
  const std::map<int, IntervalSet>& ids() const { return ids_; }
  // All ids in use are smaller.
  CacheId next_id() const { return next_id_; }
  std::size_t size() const { return entries_.size(); }

  // Whether agreed() of these would evict something.
  bool is_full_for(const std::vector<SharedTensor>& tensors) const;

  // The effects of responses. Evicted entries are appended to `evicted`.
  void used(CacheId id);
  void agreed(const SharedTensor& tensor, std::vector<EvictedTensor>& evicted);
  void set_removed(int process_set, std::vector<EvictedTensor>& evicted);

 private:
  struct CachedTensor {
    SharedTensor tensor;
    std::list<CacheId>::iterator place;  // in by_use_
  };
  void erase(CacheId id, std::vector<EvictedTensor>& evicted);

  std::size_t capacity_;
  CacheId next_id_ = 0;
  std::unordered_map<CacheId, CachedTensor> entries_;
  std::unordered_map<TensorKey, CacheId, TensorKeyHash, TensorKeyEqual> by_key_;
  std::map<int, IntervalSet> ids_;
  std::list<CacheId> by_use_;  // the one used last is at the end
};

}  // namespace hvd::runtime
