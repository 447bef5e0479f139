// An inner node of the control tree, or a leaf: gathers what the ranks of its subtree ask for, and
// passes it on when all of them do. So the parent hears of a tensor once, however many ranks are
// below.
//
// What is not complete after `hold` is passed on in part, with what the ranks around here asked for
// last: somebody is late, and the root must be able to say who. What comes after that for the same
// tensor is passed on at once. The same goes for everything from when somebody has left.
//
// A pure state machine that looks at the cache and the process sets of its owner; for one thread.
#pragma once

#include <map>
#include <vector>

#include "base/clock.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/last_words.h"
#include "runtime/negotiation/message_table.h"

namespace hvd::runtime {

class Gatherer {
 public:
  Gatherer(const ResponseCache& cache, const ProcessSets& sets, const ControlTree& tree, int rank,
           Duration hold);

  // From a child, or (`from` is the own rank) of the rank itself.
  Status take(int from, Upward message, TimePoint now);
  void pass_at_once();
  // What the parent is to know now.
  Upward collect(TimePoint now);
  TimePoint next_collect() const { return next_look_; }

  void answered(const IntervalSet& ids, const std::vector<SharedTensor>& tensors) {
    table_.answered(ids, tensors);
  }
  void join_ended() { table_.join_ended(); }
  void died(const std::vector<Departed>& ids) { table_.died(ids); }
  void set_removed(int process_set) { table_.set_removed(process_set); }

 private:
  void pass_touched(const MessageTable::Touched& touched, TimePoint now);
  void pass(const TensorKey& key);
  void look_for_late_ones(TimePoint now);
  bool is_passed_in_part(const MessageTable::Row& row) const { return !row.passed.empty(); }

  const ResponseCache& cache_;
  Duration hold_;
  MessageTable table_;
  LastWords last_words_;
  bool at_once_ = false;
  TimePoint next_look_ = kNever;  // no row is too late before; there may be none then, either
  TimePoint reported_{};          // when last_words_ were told last
  std::map<RankSet, IntervalSet> known_;
  Upward pending_;
};

}  // namespace hvd::runtime
