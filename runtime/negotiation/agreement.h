// Whether ranks that asked for a tensor of one name asked for the same. Pure.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/message_table.h"

namespace hvd::runtime {

// A row that is complete, as all of its ranks see it.
struct Agreement {
  SharedTensor tensor;
  std::vector<int> joined;  // members that have no part in it
  // Not ok: the first thing about which two ranks differ, with one of each side and its host. Texts
  // are Horovod's where it has one.
  Status error;
};

// `cached`: what the row's id stands for, if it has one.
Agreement agreement_of(MessageTable::Row row, const ResponseTensor* cached, const RankSet& members,
                       const ControlTree& tree);

}  // namespace hvd::runtime
