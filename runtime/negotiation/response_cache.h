// What was agreed about tensors before, under short names: a rank that asks for the same again
// sends the id only, and if all do, the response is ids only, too.
//
// Every rank keeps the same cache: it changes by responses alone, in their order, which is the same
// on all. Ids grow and are never used again, so that one which is still under way when its entry
// has gone is not mistaken for another. An entry goes when the cache is full and it was not used
// for the longest time, when other things were agreed about its tensor, or with its process set;
// whoever still waits for something that he asked for by this id asks again, in full.
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

// What a tensor is known by: names of different process sets do not meet.
struct TensorKey {
  int process_set = kGlobalSet;
  std::string name;
  friend bool operator==(const TensorKey&, const TensorKey&) = default;
  friend bool operator<(const TensorKey& a, const TensorKey& b) {
    return std::tie(a.process_set, a.name) < std::tie(b.process_set, b.name);
  }
};
inline TensorKey key_of(const Request& request) { return {negotiated_in(request), request.name}; }

// The same, of a name that lies elsewhere: what happens for every tensor of every step looks up
// without a copy.
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

// Of allgather and alltoall the first extents may differ between ranks.
inline bool is_ragged(const Request& request) {
  return (request.kind == Kind::allgather || request.kind == Kind::alltoall) &&
         !request.shape.empty();
}

// An id that stands for nothing any more, and what it stood for.
struct Departed {
  CacheId id = 0;
  SharedTensor tensor;
};

class ResponseCache {
 public:
  explicit ResponseCache(std::size_t capacity) : capacity_(capacity) {}

  // Whether what was agreed may be kept at all.
  static bool keeps(Kind kind);

  // The id that says the same as this request of the rank at `position` of its set.
  std::optional<CacheId> find(const Request& request, int position) const;
  // Null: there is no such entry, or no more.
  SharedTensor get(CacheId id) const;
  SharedTensor get(const TensorKeyView& key, CacheId* id = nullptr) const;
  // Whether it is this very tensor that it keeps.
  bool has(const ResponseTensor& tensor) const {
    if (tensor.cache_id == ResponseTensor::kNotCached) return false;
    const auto found = entries_.find(tensor.cache_id);
    return found != entries_.end() && found->second.tensor.get() == &tensor;
  }
  // The ids that stand for something, by the process set whose members negotiate about it.
  const std::map<int, IntervalSet>& ids() const { return ids_; }
  // Ids from here on have not been given out.
  CacheId next_id() const { return next_id_; }
  std::size_t size() const { return entries_.size(); }

  // What responses do to it. Entries that went are appended to `died`.
  void used(CacheId id);
  void agreed(const SharedTensor& tensor, std::vector<Departed>& died);
  void set_removed(int process_set, std::vector<Departed>& died);

 private:
  struct CachedTensor {
    SharedTensor tensor;
    std::list<CacheId>::iterator place;  // in by_use_
  };
  void erase(CacheId id, std::vector<Departed>& died);

  std::size_t capacity_;
  CacheId next_id_ = 0;
  std::unordered_map<CacheId, CachedTensor> entries_;
  std::unordered_map<TensorKey, CacheId, TensorKeyHash, TensorKeyEqual> by_key_;
  std::map<int, IntervalSet> ids_;
  std::list<CacheId> by_use_;  // the one used last is last
};

}  // namespace hvd::runtime
