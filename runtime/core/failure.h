// Why a collective or a whole world failed, and because of which rank. A value.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace hvd::runtime {

struct Failure {
  Status status;     // ok: no failure
  int rank = -1;     // the member that was lost or caused it; -1: not known, or no member did
  std::string host;  // where that member ran
  bool world_failed = false;  // the whole world failed, not only this call

  Failure() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): no member caused a Status
  Failure(Status why, int whose = -1, std::string where = {})
      : status(std::move(why)), rank(whose), host(std::move(where)) {}
  bool ok() const { return status.ok(); }
};

}  // namespace hvd::runtime
