// Checks that all ranks which requested a tensor of one name requested the same operation. Pure.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/message_table.h"

namespace hvd::runtime {

// A complete row, as all of its ranks see it.
struct CheckedRow {
  SharedTensor tensor;
  std::vector<int> joined;  // members that have joined instead of requesting it
  // Not ok: the first property in which two ranks differ, with one rank of each side and its host.
  // The texts are Horovod's where it has one.
  Status error;
};

// `cached`: the tensor for which the row's id stands, if it has one.
CheckedRow check_consistency(MessageTable::Row row, const ResponseTensor* cached,
                             const RankSet& members, const ControlTree& tree);

}  // namespace hvd::runtime
