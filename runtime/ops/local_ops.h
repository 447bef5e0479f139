// The collectives of one rank: there is no peer, so only the arithmetic is left. For worlds of
// one, without any connections; and, for the other families, for sets of one rank or of which all
// others have joined.
#pragma once

#include "runtime/ops/operation.h"

namespace hvd::runtime {

// Runs the response as if all other members of the group had joined. May throw what allocators
// throw; an error that concerns one tensor goes into its outcome. Nothing is sent, so nothing is
// compressed.
void run_alone(const Response& response, const Group& group, const Entries& entries,
               std::span<Outcome> outcomes);

class LocalOperation final : public Operation {
 public:
  std::string_view name() const override { return "local"; }
  bool enabled(const Response& response, const Group& group) const override;
  Status execute(const Response& response, const Group& group, const Entries& entries,
                 std::span<Outcome> outcomes) override;
  bool gives_notice() const override { return true; }
  void abort() override {}
};

}  // namespace hvd::runtime
