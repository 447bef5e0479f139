// Tensors that some ranks of a subtree have requested and others have not yet. The coordinator has
// a table for the whole world, every other inner node of the control tree one for its subtree.
//
// In a step that repeats an earlier one all requests are ids. Those are kept as sets of ids that
// some set of ranks has requested, and cost the same for one tensor as for a thousand. As soon as
// there is anything else (a request in full, a rank that joined, a rank that is late) every tensor
// gets a row of its own, until no row is left.
//
// A pure value that reads the cache and the process sets of its owner; for one thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/process_sets.h"
#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime {

class MessageTable {
  struct KeyOrder {
    using is_transparent = void;
    bool operator()(const TensorKeyView& a, const TensorKeyView& b) const {
      return std::tie(a.process_set, a.name) < std::tie(b.process_set, b.name);
    }
  };

 public:
  // Ranks whose requests are equal.
  struct Variant {
    Request request;
    RankSet ranks;
    std::map<int, std::int64_t> first_extents;  // by rank, if is_ragged()
  };
  struct Row {
    TimePoint since{};           // when the first rank requested it
    RankSet asked;               // all ranks that requested it
    std::optional<CacheId> id;   // the cache id that ...
    RankSet by_id;               // ... these of them used
    std::vector<Variant> whole;  // the requests of the others, in full
    RankSet forwarded;           // those of `asked` that the parent has been told of
  };

  MessageTable(const ResponseCache& cache, const ProcessSets& sets, RankSet scope)
      : cache_(cache), sets_(sets), scope_(std::move(scope)) {}

  struct Touched {
    // Rows that were changed; the caller checks whether they are complete.
    std::vector<TensorKey> rows;
    std::vector<CachedRequests>
        complete;  // requested by id by all ranks in scope; these have left the table
  };
  // Requests that have become meaningless are dropped: an id that was evicted, a process set that
  // was removed. An error: the sender violated the protocol.
  Status add(const CachedRequests& known, TimePoint now, Touched& touched);
  Status add(const FullRequest& asked, TimePoint now, Touched& touched);

  // The ranks in scope that must request it: those that it names (is_among_named_ranks()), or those
  // of its process set.
  RankSet participants(const TensorKey& key, const Row& row) const;
  // All participants that have not joined have requested it.
  bool complete(const TensorKey& key, const Row& row) const;
  // The participants that have neither requested it nor joined.
  RankSet missing(const TensorKey& key, const Row& row) const;
  Row* find(const TensorKey& key);
  Row take(const TensorKey& key);  // it must be there
  bool empty() const { return rows_.empty() && pieces_.empty(); }
  TimePoint oldest() const;  // when the oldest waiting request came; kNever: no request waits
  using Rows = std::map<TensorKey, Row, KeyOrder>;
  const Rows& rows() const;
  // Every request gets a row from now on: what is done with a tensor then depends on more than its
  // ranks.
  void only_rows();

  // These ranks make no more requests; from now on they count as ready for every tensor.
  Status join(const RankSet& ranks);
  const RankSet& joined() const { return joined_; }

  // The effects of responses. `ids`: those of the answered tensors that have one.
  void answered(const IntervalSet& ids, const std::vector<SharedTensor>& tensors);
  void join_ended() { joined_ = {}; }
  void evicted(const std::vector<EvictedTensor>& departed);
  void set_removed(int process_set);

 private:
  // Ids of one process set that the same ranks requested, and that no rank requested in full.
  struct CachedPiece {
    int process_set;
    TimePoint since;
    RankSet ranks;
    IntervalSet ids;
  };
  // A step comes in a few pieces from each rank. With more pieces than this, sets save nothing.
  static constexpr std::size_t kMaxPieces = 64;

  const RankSet& members_in_scope(int process_set) const;
  Status check_may_ask(std::string_view name, int process_set, const RankSet& ranks) const;
  Status add_ids(int process_set, const IntervalSet& ids, const RankSet& ranks, TimePoint now,
                 Touched& touched);
  void add_piece(CachedPiece piece, Touched& touched);
  void forget(const IntervalSet& ids);
  void expand() const;
  Status add_row(const TensorKey& key, const RankSet& ranks, TimePoint now, Row** row);

  const ResponseCache& cache_;
  const ProcessSets& sets_;
  RankSet scope_;
  RankSet joined_;
  bool only_rows_ = false;
  // One of these two is always empty. Reading the rows may create them, but does not change the
  // content.
  mutable Rows rows_;
  mutable std::vector<CachedPiece> pieces_;
  mutable std::map<int, RankSet> members_in_scope_;
};

}  // namespace hvd::runtime
