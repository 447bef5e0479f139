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

#include "runtime/negotiation/process_sets.h"
#include "runtime/request.h"

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
struct TensorKeyHash {
  std::size_t operator()(const TensorKey& key) const {
    return std::hash<std::string>()(key.name) * 31 + static_cast<std::size_t>(key.process_set);
  }
};
inline TensorKey key_of(const Request& request) { return {negotiated_in(request), request.name}; }

// Of allgather and alltoall the first extents may differ between ranks.
inline bool is_ragged(const Request& request) {
  return (request.kind == Kind::allgather || request.kind == Kind::alltoall) &&
         !request.shape.empty();
}

// An id that stands for nothing any more, and what it stood for.
struct Departed {
  CacheId id = 0;
  TensorKey key;
  friend bool operator==(const Departed&, const Departed&) = default;
};

class ResponseCache {
 public:
  explicit ResponseCache(std::size_t capacity) : capacity_(capacity) {}

  // Whether what was agreed may be kept at all.
  static bool keeps(Kind kind);

  // The id that says the same as this request of the rank at `position` of its set.
  std::optional<CacheId> find(const Request& request, int position) const;
  // Null: there is no such entry, or no more.
  std::shared_ptr<const ResponseTensor> get(CacheId id) const;
  std::shared_ptr<const ResponseTensor> get(const TensorKey& key, CacheId* id = nullptr) const;
  // Ids from here on have not been given out.
  CacheId next_id() const { return next_id_; }
  std::size_t size() const { return entries_.size(); }

  // What responses do to it. Entries that went are appended to `died`.
  void used(CacheId id);
  void agreed(std::shared_ptr<const ResponseTensor> tensor, std::vector<Departed>& died);
  void set_removed(int process_set, std::vector<Departed>& died);

 private:
  struct CachedTensor {
    std::shared_ptr<const ResponseTensor> tensor;
    std::list<CacheId>::iterator place;  // in by_use_
  };
  void erase(CacheId id, std::vector<Departed>& died);

  std::size_t capacity_;
  CacheId next_id_ = 0;
  std::unordered_map<CacheId, CachedTensor> entries_;
  std::unordered_map<TensorKey, CacheId, TensorKeyHash> by_key_;
  std::list<CacheId> by_use_;  // the one used last is last
};

}  // namespace hvd::runtime
