// An inner node or a leaf of the control tree: gathers the requests of the ranks in its subtree,
// and forwards a tensor once all of them have requested it. So the parent hears of a tensor once,
// however many ranks are below.
//
// A row that is incomplete after `hold` is forwarded in part, together with the last requests of
// the ranks below: some rank is late, and the root must be able to name it. Later requests for the
// same tensor are forwarded at once. The same applies to all requests once a rank is in shutdown().
//
// A pure state machine that reads the cache and the process sets of its owner; for one thread.
#pragma once

#include <map>
#include <vector>

#include "base/clock.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/last_requests.h"
#include "runtime/negotiation/message_table.h"

namespace hvd::runtime {

class Gatherer {
 public:
  Gatherer(const ResponseCache& cache, const ProcessSets& sets, const ControlTree& tree, int rank,
           Duration hold);

  // Requests of a child, or, if `from` is the own rank, of the rank itself.
  Status take(int from, RequestList message, TimePoint now);
  void forward_immediately();
  // Returns what is to be sent to the parent now.
  RequestList collect(TimePoint now);
  TimePoint next_collect() const { return next_look_; }

  void answered(const IntervalSet& ids, const std::vector<SharedTensor>& tensors) {
    table_.answered(ids, tensors);
  }
  void join_ended() { table_.join_ended(); }
  void evicted(const std::vector<EvictedTensor>& ids) { table_.evicted(ids); }
  void set_removed(int process_set) { table_.set_removed(process_set); }

 private:
  void forward_touched(const MessageTable::Touched& touched, TimePoint now);
  void forward(const TensorKey& key);
  void forward_late_rows(TimePoint now);
  bool is_partly_forwarded(const MessageTable::Row& row) const { return !row.forwarded.empty(); }

  const ResponseCache& cache_;
  Duration hold_;
  MessageTable table_;
  LastRequests last_requests_;
  bool forward_immediately_ = false;
  // When the first row becomes late, or earlier; there may be no such row then.
  TimePoint next_look_ = kNever;
  TimePoint reported_{};  // when last_requests_ were sent last
  std::map<RankSet, IntervalSet> known_;
  RequestList pending_;
};

}  // namespace hvd::runtime
