// Says what stands still and whose fault it is: tensors that some ranks have asked for and others
// have not, for longer than `warning`. Lives beside the coordinator. A pure value: it is shown the
// table and the time, and returns texts.
//
// A warning names the tensors, the ranks that are missing, and what each of those asked for last:
// their connections stand, or the world would have failed; so they are slow, they are stuck in
// something else, or they went another way. It is repeated no more often than each `warning`. After
// `shutdown` the stall is a failure of the world.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/core/failure.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/last_words.h"
#include "runtime/negotiation/message_table.h"

namespace hvd::runtime {

class StallInspector {
 public:
  struct Findings {
    std::vector<std::string> warnings;    // something stands still
    std::vector<std::string> recoveries;  // what stood still goes on
    Failure failure;                      // for too long
  };

  // `warning` zero: never looks. `shutdown` zero: never fails.
  StallInspector(const ControlTree& tree, Duration warning, Duration shutdown)
      : tree_(tree),
        warning_(shutdown == Duration::zero() ? warning : std::min(warning, shutdown)),
        shutdown_(shutdown) {}

  Findings look(const MessageTable& table, const LastWords& words, TimePoint now);
  // When to look again; kNever if there is nothing to look at. Costs nothing.
  TimePoint next_look(const MessageTable& table, TimePoint now);

 private:
  struct Stalled {
    TensorKey key;
    TimePoint since;
    RankSet missing;
  };
  std::vector<Stalled> stalled(const MessageTable& table, TimePoint now) const;
  std::string missing_text(const std::vector<Stalled>& stalled, const LastWords& words,
                           TimePoint now) const;
  std::string word_text(int rank, const LastWords& words, TimePoint now) const;

  const ControlTree& tree_;
  Duration warning_;
  Duration shutdown_;
  TimePoint look_at_ = kNever;             // set as soon as there is something in the table
  TimePoint quiet_until_{};                // no warning before
  std::map<TensorKey, TimePoint> warned_;  // and since when they stood still
};

}  // namespace hvd::runtime
