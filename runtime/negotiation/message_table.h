// What some ranks of a subtree have asked for and others not yet. The coordinator has one for the
// whole world, every other inner node of the control tree one for what lies below it.
//
// A step that all have done before is asked for by ids alone. Those are kept as what they are, sets
// of ids that some set of ranks has asked for, and cost the same for one tensor as for a thousand.
// As soon as there is anything else (a request in full, a rank that joined, one that is late) every
// tensor gets a row of its own, and the table goes back when no row is left.
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
  struct KeyOrder {
    using is_transparent = void;
    bool operator()(const TensorKeyView& a, const TensorKeyView& b) const {
      return std::tie(a.process_set, a.name) < std::tie(b.process_set, b.name);
    }
  };

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

  struct Touched {
    std::vector<TensorKey> rows;  // that it went to; whether they are complete is for the caller
    std::vector<Known> complete;  // what all in scope have now asked for by id, and left the table
  };
  // What can no longer mean anything is left out: an id whose entry has gone, a process set that
  // was removed. An error: the sender does not keep to the protocol.
  Status add(const Known& known, TimePoint now, Touched& touched);
  Status add(const Asked& asked, TimePoint now, Touched& touched);

  // All of the row's set that are in scope and have not joined have asked.
  bool complete(const TensorKey& key, const Row& row) const;
  // Who has neither asked nor joined.
  RankSet missing(const TensorKey& key, const Row& row) const;
  Row* find(const TensorKey& key);
  Row take(const TensorKey& key);  // it must be there
  bool empty() const { return rows_.empty() && together_.empty(); }
  TimePoint oldest() const;  // since when something waits; kNever: nothing does
  using Rows = std::map<TensorKey, Row, KeyOrder>;
  const Rows& rows() const;
  // From now on everything has a row: what is done with a tensor depends on more than its ranks.
  void only_rows();

  // These ask for no more; their part in everything counts as there.
  Status join(const RankSet& ranks);
  const RankSet& joined() const { return joined_; }

  // What responses do to it. `ids`: of those tensors that are known by one.
  void answered(const IntervalSet& ids, const std::vector<SharedTensor>& tensors);
  void join_ended() { joined_ = {}; }
  void died(const std::vector<Departed>& departed);
  void set_removed(int process_set);

 private:
  // Ids of one process set that the same ranks asked for, and nobody asked for in full.
  struct Together {
    int process_set;
    TimePoint since;
    RankSet ranks;
    IntervalSet ids;
  };
  // A step comes in a few pieces from each rank. Who asks in more gains nothing by sets.
  static constexpr std::size_t kMaxPieces = 64;

  const RankSet& members_in_scope(int process_set) const;
  Status check_may_ask(std::string_view name, int process_set, const RankSet& ranks) const;
  Status add_together(int process_set, const IntervalSet& ids, const RankSet& ranks, TimePoint now,
                      Touched& touched);
  void add_piece(Together piece, Touched& touched);
  void forget(const IntervalSet& ids);
  void separate() const;
  Status add_row(const TensorKey& key, const RankSet& ranks, TimePoint now, Row** row);

  const ResponseCache& cache_;
  const ProcessSets& sets_;
  RankSet scope_;
  RankSet joined_;
  bool only_rows_ = false;
  // Of these two one is empty. To look at rows is no change, though it may make them.
  mutable Rows rows_;
  mutable std::vector<Together> together_;
  mutable std::map<int, RankSet> members_in_scope_;
};

}  // namespace hvd::runtime
