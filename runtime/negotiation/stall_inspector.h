// Reports tensors that some ranks have requested and others have not, for longer than `warning`,
// and names the late ranks. It lives beside the coordinator. A pure value: it is given the table
// and the time, and returns texts.
//
// A warning names the tensors, the missing ranks, and the last request of each: their connections
// are up, or the world would have failed; so they are slow, stuck elsewhere, or took a different
// path through the program. It is repeated no more often than every `warning`. After `shutdown` the
// stall is a failure of the world.
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
#include "runtime/negotiation/last_requests.h"
#include "runtime/negotiation/message_table.h"

namespace hvd::runtime {

class StallInspector {
 public:
  struct Findings {
    std::vector<std::string> warnings;    // tensors that stall
    std::vector<std::string> recoveries;  // tensors that stalled and have completed
    Failure failure;                      // a stall that exceeded `shutdown`
  };

  // `warning` zero: no inspection. `shutdown` zero: a stall is never a failure.
  StallInspector(const ControlTree& tree, Duration warning, Duration shutdown)
      : tree_(tree),
        warning_(shutdown == Duration::zero() ? warning : std::min(warning, shutdown)),
        shutdown_(shutdown) {}

  Findings look(const MessageTable& table, const LastRequests& words, TimePoint now);
  // Which ranks have not asked for the tensors of the table, however short the others have waited:
  // "rank 3 on b#1 has not asked for "a", "b"; it asked for "c" last, 2 s ago", a line each.
  std::string missing_text(const MessageTable& table, const LastRequests& words,
                           TimePoint now) const;
  // When to look again; kNever if the table is empty. Cheap.
  TimePoint next_look(const MessageTable& table, TimePoint now);

 private:
  struct Stalled {
    TensorKey key;
    TimePoint since;
    RankSet missing;
  };
  // Tensors that have waited for at least this long.
  static std::vector<Stalled> stalled(const MessageTable& table, Duration least, TimePoint now);
  // `link`: what is known of the ranks' connections.
  std::string missing_text(const std::vector<Stalled>& stalled, std::string_view link,
                           const LastRequests& words, TimePoint now) const;
  std::string last_request_text(int rank, const std::vector<Stalled>& stalled,
                                const LastRequests& words, TimePoint now) const;

  const ControlTree& tree_;
  Duration warning_;
  Duration shutdown_;
  TimePoint look_at_ = kNever;             // set as soon as the table is not empty
  TimePoint quiet_until_{};                // no warning before this time
  std::map<TensorKey, TimePoint> warned_;  // with the time since which they stall
};

}  // namespace hvd::runtime
