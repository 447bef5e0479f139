// One rank's part in the negotiation: its own requests and the messages of its neighbours go in,
// messages to send and responses to execute come out. It keeps this rank's copy of the common
// state, the response cache and the process sets, and contains the coordinator on rank 0, a
// gatherer elsewhere.
//
// Responses pass through every rank in one order, and are applied there before they go on to its
// children: so a child never knows more than its parent. A request by an id that the parent has
// already evicted may be dropped by the parent, since the child is going to learn of the eviction,
// too, and then requests the tensor again in full.
//
// A pure state machine: no clock, socket or thread inside. For one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/core/config.h"
#include "runtime/core/failure.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/gatherer.h"
#include "runtime/negotiation/lane_plan.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/stall_inspector.h"

namespace hvd::runtime {

class Negotiator {
 public:
  Negotiator(const std::shared_ptr<const ControlTree>& tree, int rank, const Config& config);
  // `sets`: the process sets that exist from the start, the same on all ranks.
  Negotiator(std::shared_ptr<const ControlTree> tree, int rank, const Config& config,
             ProcessSets sets);
  Negotiator(const Negotiator&) = delete;
  Negotiator& operator=(const Negotiator&) = delete;

  // This rank's requests, in its order; that it makes no more; and that none is in flight any more,
  // with or without close() before. World has checked that they are valid.
  Status submit(const std::vector<SubmittedRequest>& all, TimePoint now);
  Status submit(std::vector<Request> requests, TimePoint now);
  Status close(TimePoint now);
  Status leave(TimePoint now);
  // Messages from a child or the parent. An error: the sender violated the protocol.
  Status from_child(int child, RequestList message, TimePoint now);
  Status from_parent(ResponseList message, TimePoint now);

  // On rank 0; applies to what is decided from now on.
  void tune(const Parameters& parameters);
  void set_link_speed(const LinkSpeed& speed) { coordinator_->set_link_speed(speed); }
  void allow_lanes(bool allowed) { may_give_lanes_ = allowed; }

  struct Output {
    RequestList up;             // to the parent, unless it is empty
    ResponseList down;          // to every child, unless it is empty
    std::vector<Response> run;  // for this rank's executor, in this order
    bool goodbye = false;       // all ranks have left
    StallInspector::Findings stalls;
  };
  // `under_way` earlier batches are not done yet on this rank.
  Output work(TimePoint now, int under_way);
  // On rank 0: work() may return more when fewer batches are under way.
  bool waits_for_ends() const { return coordinator_ && coordinator_->has_ready(); }
  // When to call work() again even if nothing happens.
  TimePoint next_work(TimePoint now, int under_way);

  // On rank 0: which ranks have not asked for the tensors that others wait for, a line each;
  // elsewhere, or if nobody waits, empty.
  std::string missing_text(TimePoint now) const;

  bool is_root() const { return rank_ == 0; }
  // This rank or child, and all ranks below it, have left: the end of its connection is no loss.
  bool subtree_left(int rank) const { return left_.contains_all(tree_->subtree(rank)); }
  const ResponseCache& cache() const { return cache_; }
  const ProcessSets& sets() const { return sets_; }
  // How this rank's requests were sent so far. Joins are not counted.
  const CacheStats& cache_stats() const { return stats_; }
  // The number of responses applied so far, which is the number of the last one.
  std::uint64_t applied() const { return applied_; }

 private:
  struct PendingRequests;
  void add_request(Request request, PendingRequests& pending);
  Status submit_pending(PendingRequests pending, TimePoint now);
  void put_off_join(RequestList& message);
  Status take(int from, RequestList message, TimePoint now);
  std::optional<CacheId> known_id(const Request& request) const;
  WireResponse wire_response_of(const Response& response) const;

  // The next response of the order, in these steps.
  Status apply(WireResponse wire, TimePoint now);
  // `answered`: the ids under which their names are cached, possibly with other properties.
  Status look_up(const WireResponse& wire, std::vector<SharedTensor>& tensors,
                 IntervalSet& answered) const;
  Result<RankSet> ranks_that_run(const Response& response,
                                 const std::vector<SharedTensor>& tensors) const;
  void update_cache(const WireResponse& wire, const std::vector<SharedTensor>& tensors,
                    std::vector<EvictedTensor>& evicted);
  Status update_sets(const Response& response, const std::vector<SharedTensor>& tensors,
                     std::vector<EvictedTensor>& evicted);
  // Tells the coordinator, which adds to `settled`, or the gatherer.
  void note_applied(const Response& response, const std::vector<SharedTensor>& tensors,
                    const IntervalSet& answered, const std::vector<EvictedTensor>& evicted,
                    IntervalSet& settled);
  Status ask_again(const std::vector<EvictedTensor>& evicted, const IntervalSet& settled,
                   TimePoint now);

  std::shared_ptr<const ControlTree> tree_;
  int rank_;
  ResponseCache cache_;
  ProcessSets sets_;
  LanePlan lanes_;
  std::optional<Coordinator> coordinator_;  // on rank 0; elsewhere ...
  std::optional<Gatherer> gatherer_;        // ... this
  StallInspector stalls_;
  IntervalSet asked_by_id_;  // this rank's requests by id that are not answered yet
  CacheStats stats_;
  RankSet left_;
  bool told_that_ids_stay_ = false;
  bool joins_when_told_ = false;  // that ids stay
  bool told_to_forward_ = false;
  bool closes_when_told_ = false;  // to forward immediately
  bool may_cache_ = true;          // at the root, which says so with each response
  bool may_give_lanes_ = false;    // likewise
  bool caching_ = true;            // of the last response
  std::uint64_t applied_ = 0;      // responses, the same on all ranks
  Output output_;
};

// How long a gatherer waits for the rest of its subtree before it forwards a row in part.
Duration hold_time(const Config& config);

}  // namespace hvd::runtime
