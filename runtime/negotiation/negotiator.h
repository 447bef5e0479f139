// One rank's part in the negotiation: what it asks for and what it hears goes in, what it is to
// send and to run comes out. It keeps the rank's copy of what all have agreed about so far, the
// response cache and the process sets, and holds the coordinator on rank 0, a gatherer elsewhere.
//
// Responses pass through every rank in one order, and change its copy in that order, before they go
// on to its children: so a child never knows more than its parent. What it says in words that the
// parent no longer knows (an id that has gone) the parent may drop, since the child is going to
// learn it, too, and then asks again in full.
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
#include "runtime/negotiation/stall_inspector.h"
#include "runtime/negotiation/traffic.h"

namespace hvd::runtime {

class Negotiator {
 public:
  Negotiator(const std::shared_ptr<const ControlTree>& tree, int rank, const Config& config);
  // `sets`: those that there are from the start, the same on all ranks.
  Negotiator(std::shared_ptr<const ControlTree> tree, int rank, const Config& config,
             ProcessSets sets);
  Negotiator(const Negotiator&) = delete;
  Negotiator& operator=(const Negotiator&) = delete;

  // What this rank asks for, in its order; and that it will ask for nothing more. World has checked
  // that it may.
  Status submit(const std::vector<Wanted>& all, TimePoint now);
  Status submit(std::vector<Request> requests, TimePoint now);
  Status leave(TimePoint now);
  // From a child, or the parent. An error: the sender does not keep to the protocol.
  Status from_child(int child, Upward message, TimePoint now);
  Status from_parent(Downward message, TimePoint now);

  // On rank 0; holds for what is decided from now on.
  void tune(const Parameters& parameters);

  struct Output {
    Upward up;                  // to the parent, unless it is empty
    Downward down;              // to every child, unless it is empty
    std::vector<Response> run;  // by this rank's executor, in this order
    bool goodbye = false;       // all have left
    StallInspector::Findings stalls;
  };
  // `under_way` batches of former outputs are not done yet on this rank.
  Output work(TimePoint now, int under_way);
  // On rank 0: something is ready that work() may bring out when less is under way.
  bool waits_for_ends() const { return coordinator_ && coordinator_->has_ready(); }
  // When to call work() although nothing has happened.
  TimePoint next_work(TimePoint now, int under_way);

  bool is_root() const { return rank_ == 0; }
  // This rank, or this child, and all below it have left: it may go, and nobody misses it.
  bool subtree_left(int rank) const { return left_.contains_all(tree_->subtree(rank)); }
  const ResponseCache& cache() const { return cache_; }
  const ProcessSets& sets() const { return sets_; }
  // What this rank has asked for so far. Joins are not counted.
  const AskedCounts& asked() const { return asked_; }
  // Responses so far: the number of the last one.
  std::uint64_t applied() const { return applied_; }

 private:
  struct Plea;
  void want(Request request, Plea& plea);
  Status plead(Plea plea, TimePoint now);
  Status take(int from, Upward message, TimePoint now);
  std::optional<CacheId> known_id(const Request& request) const;
  Decision decision_of(const Response& response) const;
  Status apply(Decision decision, TimePoint now);
  Status ask_again(const std::vector<Departed>& died, const IntervalSet& settled, TimePoint now);

  std::shared_ptr<const ControlTree> tree_;
  int rank_;
  ResponseCache cache_;
  ProcessSets sets_;
  std::optional<Coordinator> coordinator_;  // on rank 0; elsewhere ...
  std::optional<Gatherer> gatherer_;        // ... this
  StallInspector stalls_;
  IntervalSet asked_by_id_;  // what this rank has no answer to yet
  AskedCounts asked_;
  RankSet left_;
  bool told_to_pass_at_once_ = false;
  bool caching_ = true;        // Decision::caching of the last one
  std::uint64_t applied_ = 0;  // responses, the same on all ranks
  Output output_;
};

// How long a gatherer waits for the rest of its subtree.
Duration hold_time(const Config& config);

}  // namespace hvd::runtime
