// The coordinator's half of the negotiation: requests of all ranks in, one total order of responses
// out. A pure state machine: no clock, socket or thread inside. It lives on rank 0; for one thread.
//
// A tensor is ready once every rank of its process set has requested it or joined. If the requests
// are consistent, it waits to be batched with others; if they are not, an error that names both
// sides takes its place, in the same order on every rank, and the world goes on.
//
// While rank 0's executor is busy, ready tensors gather, which is what fills a batch: one batch
// runs, one waits behind it, and the rest is still here and may be joined by others. After
// `cycle_time` a tensor may run all the same, as long as at most kMaxAhead batches are under way.
//
// Batches therefore depend on timing, and floating-point sums depend on batches. In deterministic
// mode only tensors of one group share a batch, which a program states and timing cannot change;
// and operations with rank 0 among their ranks run in the order in which rank 0 requested them. The
// first tensor in that order then holds back the others, but no longer than kOrderTimeout: a
// program in which another rank waits for a later tensor before it requests the first becomes slow,
// but does not deadlock. Batches, and hence results, are the same even then.
//
// Each rank requests a group as a whole, and has one group of a name in flight. So if all ranks
// have requested theirs and some tensors of it still wait for ranks, these ranks mean a different
// group: after kGroupTimeout that is an error on all of them.
//
// Cache and process sets belong to the owner (negotiator.h), which applies each response to them,
// and reports that with applied(), before the next response is taken.
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
#include "runtime/negotiation/consistency.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/fusion.h"
#include "runtime/negotiation/groups.h"
#include "runtime/negotiation/last_requests.h"
#include "runtime/negotiation/message_table.h"
#include "runtime/negotiation/messages.h"

namespace hvd::runtime {

struct CoordinatorOptions {
  std::size_t fusion_threshold = std::size_t{128} << 20;
  Duration cycle_time = std::chrono::milliseconds(1);
  bool deterministic = false;
  bool hierarchical_allreduce = false;  // Response::hierarchical
  bool hierarchical_allgather = false;
  LinkSpeed link_speed = {};  // Response::link_speed
};

class Coordinator {
 public:
  static constexpr int kEnoughAhead = 2;
  static constexpr int kMaxAhead = 4;
  static constexpr std::chrono::seconds kOrderTimeout{1};
  // Longer than any gatherer holds back an incomplete row.
  static constexpr std::chrono::seconds kGroupTimeout{2};

  Coordinator(const ControlTree& tree, const ResponseCache& cache, const ProcessSets& sets,
              const CoordinatorOptions& options);

  // Requests, joins and departures of the subtree of `from`, or (0) of rank 0 itself. A request
  // that still waits for a rank that makes no more fails. An error means that the sender violated
  // the protocol.
  Status take(int from, const RequestList& message, TimePoint now);
  // Rank 0 is about to request this: deterministic mode needs the order.
  void note_order(const Request& request);
  bool any_in_shutdown() const { return in_shutdown_ || !closing_.empty(); }
  // No id may leave the caches any more.
  bool must_keep_ids() const { return keeps_ids_ || any_in_shutdown(); }
  bool all_left() const { return left_ == tree_.subtree(0); }

  // Applies to all later responses.
  void tune(const Parameters& parameters);
  void set_link_speed(const LinkSpeed& speed) { options_.link_speed = speed; }

  // The next batch to run, if any; `under_way` earlier batches are not done yet on rank 0.
  std::optional<Response> next(TimePoint now, int under_way);
  // When to call next() again although nothing has arrived and no batch has ended.
  TimePoint next_at(int under_way) const;
  // next() may return more when fewer batches are under way.
  bool has_ready() const { return !ready_.empty(); }
  // The response has been applied to the cache and the process sets, and has evicted these ids.
  void applied(const Response& response, const std::vector<EvictedTensor>& evicted);

  // All ranks have requested this tensor, and its response is still to come.
  bool is_decided(const ResponseTensor& cached) const {
    return decided_ids_.contains(cached.cache_id) || decided_.contains(view_of(cached.request));
  }

  // For the stall inspector: tensors that wait for some rank, and the last requests of each rank.
  const MessageTable& table() const { return table_; }
  const LastRequests& last_requests() const { return last_requests_; }

 private:
  using Order = std::uint64_t;
  struct MismatchedGroup;
  std::string describe(int rank) const { return tree_.describe(rank); }
  void decide_touched(const MessageTable::Touched& touched, TimePoint now);
  void decide_known(CacheId id, TimePoint now);
  void decide(const TensorKey& key, TimePoint now);
  void decided(const std::vector<GroupKey>& groups, ReadyTensor tensor);
  void close(const RankSet& ranks, TimePoint now);
  bool waits_in_vain(const TensorKey& key, const MessageTable::Row& row) const;
  void fail_for_shutdown(const TensorKey& key, TimePoint now);
  void find_mismatched_groups(TimePoint now);
  Status mismatch_of(const MismatchedGroup& group) const;
  void fail(const TensorKey& key, Status error, TimePoint now);
  void join(const RankSet& ranks, TimePoint now);
  bool fail_join_in_vain(TimePoint now);
  Status shutdown_error(const Request& request, RankSet::Value closing) const;
  void end_join(Status error, TimePoint now);
  void enqueue(ReadyTensor tensor);
  void enqueue(std::vector<ReadyTensor> tensors);
  void release_ordered(TimePoint now);
  void forget_decided(const Request& request);
  void forget_set(int process_set);
  Response response_of(std::vector<ReadyTensor> batch);

  const ControlTree& tree_;
  const ResponseCache& cache_;
  const ProcessSets& sets_;
  CoordinatorOptions options_;
  MessageTable table_;
  LastRequests last_requests_;
  Groups groups_;
  // The tensors in groups_, ordered_ and ready_: by id if they were requested by ids that are still
  // in the cache, else by the names in their requests.
  IntervalSet decided_ids_;
  std::unordered_multiset<TensorKeyView, TensorKeyHash, TensorKeyEqual> decided_;
  std::deque<ReadyTensor> ready_;
  TimePoint next_group_look_ = kNever;
  bool keeps_ids_ = false;    // some rank joins or closes with calls in flight
  bool in_shutdown_ = false;  // some rank closes soon
  RankSet closing_;           // make no more calls
  RankSet left_;              // those of them that have none in flight
  int last_joined_ = -1;

  // Deterministic mode: rank 0's requests, in its order.
  Order next_order_ = 0;
  std::map<TensorKey, Order> order_of_;
  std::set<Order> unreleased_;
  std::map<Order, std::vector<ReadyTensor>> ordered_;  // decided, but an earlier one is not
};

}  // namespace hvd::runtime
