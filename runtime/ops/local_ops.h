// The collectives of a world of one: nobody to talk to, so only the arithmetic is left.
#pragma once

#include "runtime/ops/operation.h"

namespace hvd::runtime {

class LocalOperation final : public Operation {
 public:
  std::string_view name() const override { return "local"; }
  bool enabled(const Response&, std::span<const Entry>) const override { return true; }
  Status execute(const Response& response, std::span<Entry> entries) override;
  void abort() override {}
};

}  // namespace hvd::runtime
