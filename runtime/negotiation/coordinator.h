// The coordinator's half of the negotiation: requests of all ranks in, one total order of responses
// out. A pure state machine: no clock, socket or thread inside. Lives on rank 0, for one thread.
//
// A tensor is ready once every rank of its process set has asked for it or joined. If the ranks
// agree about it, it waits in line to be batched with others; if they do not, an error that names
// both sides takes its place, in the same order on every rank, and the world goes on.
//
// While rank 0's executor has enough to do, ready tensors gather, and that is what fills a batch:
// one batch runs, one waits behind it, the rest is still here and may be joined. After `cycle_time`
// a tensor may go all the same, as long as no more than kMaxAhead batches are under way.
//
// That makes batches a matter of timing, and sums of floating point depend on them. In
// deterministic mode only tensors of one group share a batch, which a program states and timing
// cannot change; and what rank 0 takes part in runs in the order in which rank 0 asked for it. Then
// whoever is first in that order holds back the others, but no longer than kOrderPatience: a
// program in which another rank waits for a later one before it asks for the first shall be slow,
// not stuck. Batches, and hence results, are the same even then.
//
// Each rank asks for a group as a whole, and has one of a name in flight. So if all have asked for
// theirs and some tensors of it still wait for ranks, these ranks have another group in mind: after
// kGroupPatience that is an error on all of them.
//
// Cache and process sets belong to the owner (negotiator.h), who applies each response to them, and
// tells with applied(), before the next one is taken.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/core/parameters.h"
#include "runtime/negotiation/agreement.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/fusion.h"
#include "runtime/negotiation/groups.h"
#include "runtime/negotiation/last_words.h"
#include "runtime/negotiation/message_table.h"
#include "runtime/negotiation/traffic.h"

namespace hvd::runtime {

struct CoordinatorOptions {
  std::size_t fusion_threshold = std::size_t{128} << 20;
  Duration cycle_time = std::chrono::milliseconds(1);
  bool deterministic = false;
  bool hierarchical_allreduce = false;  // Response::hierarchical
  bool hierarchical_allgather = false;
};

class Coordinator {
 public:
  static constexpr int kEnoughAhead = 2;
  static constexpr int kMaxAhead = 4;
  static constexpr std::chrono::seconds kOrderPatience{1};
  // Longer than any gatherer holds back what belongs together.
  static constexpr std::chrono::seconds kGroupPatience{2};

  Coordinator(const ControlTree& tree, const ResponseCache& cache, const ProcessSets& sets,
              const CoordinatorOptions& options);

  // What the subtree of `from`, or (0) rank 0 itself, is ready for, who of it has joined, and who
  // will ask for nothing more: what others still wait for with those can never be. An error means
  // that somebody there does not keep to the protocol.
  Status take(int from, const Upward& message, TimePoint now);
  // Rank 0 is about to ask for this: deterministic mode needs the order.
  void note_order(const Request& request);
  bool somebody_left() const { return !left_.empty(); }
  bool has_left(int rank) const { return left_.contains(static_cast<RankSet::Value>(rank)); }
  bool all_left() const { return left_ == tree_.subtree(0); }

  // Holds for all responses to come.
  void tune(const Parameters& parameters);

  // What the ranks are to run next; `under_way` batches of former calls are not done yet on rank 0.
  std::optional<Response> next(TimePoint now, int under_way);
  // When to ask again although nothing has arrived and no batch has ended.
  TimePoint next_at(int under_way) const;
  // next() may have more to give when less is under way.
  bool has_ready() const { return !ready_.empty(); }
  // The response has been applied to the cache and the process sets; those ids are no more.
  void applied(const Response& response, const std::vector<Departed>& died);

  // All have asked for what the cache keeps here; its response is still to come.
  bool is_decided(const ResponseTensor& cached) const {
    return decided_ids_.contains(cached.cache_id) || decided_.contains(view_of(cached.request));
  }

  // Tensors that wait for some rank, and what is known of the ranks: for the stall inspector.
  const MessageTable& table() const { return table_; }
  const LastWords& last_words() const { return last_words_; }

 private:
  using Order = std::uint64_t;
  struct TornGroup;
  std::string who(int rank) const { return tree_.who(rank); }
  void decide_touched(const MessageTable::Touched& touched, TimePoint now);
  void decide_known(CacheId id, TimePoint now);
  void decide(const TensorKey& key, TimePoint now);
  void decided(const std::vector<GroupKey>& groups, Ready tensor);
  void fail_for_left(const TensorKey& key, TimePoint now);
  void look_for_torn_groups(TimePoint now);
  Status torn(const TornGroup& group) const;
  void fail(const TensorKey& key, Status error, TimePoint now);
  void leave(const RankSet& ranks, TimePoint now);
  void join(const RankSet& ranks, TimePoint now);
  Status cannot_be(const Request& request, int left) const;
  void end_join(Status error, TimePoint now);
  void enqueue(Ready tensor);
  void enqueue(std::vector<Ready> tensors);
  void release_ordered(TimePoint now);
  void forget_decided(const Request& request);
  void forget_set(int process_set);
  Response response_of(std::vector<Ready> batch);

  const ControlTree& tree_;
  const ResponseCache& cache_;
  const ProcessSets& sets_;
  CoordinatorOptions options_;
  MessageTable table_;
  LastWords last_words_;
  Groups groups_;
  // What is in groups_, ordered_ and ready_: the ids of what was asked for by ids, as long as these
  // live, and the names of all else, which lie there.
  IntervalSet decided_ids_;
  std::unordered_multiset<TensorKeyView, TensorKeyHash, TensorKeyEqual> decided_;
  std::deque<Ready> ready_;
  TimePoint next_group_look_ = kNever;
  RankSet left_;
  int last_joined_ = -1;

  // Deterministic mode: what rank 0 asked for, in its order.
  Order next_order_ = 0;
  std::map<TensorKey, Order> order_of_;
  std::set<Order> unreleased_;
  std::map<Order, std::vector<Ready>> ordered_;  // decided, and waiting for their turn
};

}  // namespace hvd::runtime
