// The collectives of a world of one: nobody to talk to, so only the arithmetic is left.
#pragma once

#include "runtime/ops/operation.h"

namespace hvd::runtime {

class LocalOperation final : public Operation {
 public:
  std::string_view name() const override { return "local"; }
  bool enabled(const Response&, const Group& group) const override { return group.size() == 1; }
  Status execute(const Response& response, const Group& group, std::span<Entry> entries,
                 std::span<Outcome> outcomes) override;
  void abort() override {}
};

}  // namespace hvd::runtime
