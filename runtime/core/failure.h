// Why a collective or a whole world failed, and through whom. A value.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace hvd::runtime {

struct Failure {
  Status status;              // ok: no failure
  int rank = -1;              // the member whose loss or act it was; -1: not known, or nobody's
  std::string host;           // where that member ran
  bool world_failed = false;  // not only this call: the world is over

  Failure() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a Status is a failure of nobody's
  Failure(Status why, int whose = -1, std::string where = {})
      : status(std::move(why)), rank(whose), host(std::move(where)) {}
  bool ok() const { return status.ok(); }
};

}  // namespace hvd::runtime
