// What some ranks of a subtree have asked for and others not yet. The coordinator has one for the
// whole world, every other inner node of the control tree one for what lies below it.
//
// A pure value that looks at the cache and the process sets of its owner; for one thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/negotiation/process_sets.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/negotiation/traffic.h"

namespace hvd::runtime {

class MessageTable {
 public:
  // Ranks that asked for exactly the same.
  struct Variant {
    Request request;
    RankSet ranks;
    std::map<int, std::int64_t> first_extents;  // by rank, if is_ragged()
  };
  struct Row {
    TimePoint since{};           // when the first asked
    RankSet asked;               // all who did
    std::optional<CacheId> id;   // of those ...
    RankSet by_id;               // ... who asked by this id
    std::vector<Variant> whole;  // the others
    RankSet passed;              // of `asked`: whom the parent knows of
  };

  MessageTable(const ResponseCache& cache, const ProcessSets& sets, RankSet scope)
      : cache_(cache), sets_(sets), scope_(std::move(scope)) {}

  // The rows that it went to are appended to `touched`. What can no longer mean anything is left
  // out: an id whose entry has gone, a process set that was removed. An error: the sender does not
  // keep to the protocol.
  Status add(const Known& known, TimePoint now, std::vector<TensorKey>& touched);
  Status add(const Asked& asked, TimePoint now, std::vector<TensorKey>& touched);

  // All of the row's set that are in scope and have not joined have asked.
  bool complete(const TensorKey& key, const Row& row) const;
  // Who has neither asked nor joined.
  RankSet missing(const TensorKey& key, const Row& row) const;
  Row* find(const TensorKey& key);
  Row take(const TensorKey& key);  // it must be there
  const std::map<TensorKey, Row>& rows() const { return rows_; }

  // These ask for no more; their part in everything counts as there.
  Status join(const RankSet& ranks);
  const RankSet& joined() const { return joined_; }

  // What responses do to it.
  void answered(const TensorKey& key) { rows_.erase(key); }
  void join_ended() { joined_ = {}; }
  void died(const std::vector<Departed>& ids);
  void set_removed(int process_set);

 private:
  const RankSet& members_in_scope(int process_set) const;
  Status add_row(const TensorKey& key, const RankSet& ranks, TimePoint now, Row** row);

  const ResponseCache& cache_;
  const ProcessSets& sets_;
  RankSet scope_;
  RankSet joined_;
  std::map<TensorKey, Row> rows_;
  mutable std::map<int, RankSet> members_in_scope_;
};

}  // namespace hvd::runtime
