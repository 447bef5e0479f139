// One way to run a response: over Gloo, within one process, later through shared memory or NCCL.
// The executor asks its operations in order of priority and runs the first that is enabled().
//
// enabled() and execute() are called by the executor's thread only, one at a time, on every rank
// with the same response; enabled() must therefore answer the same on every rank. abort() may come
// from any thread at any time, also before and after: an execute() under way returns soon with an
// error, every later one at once.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "runtime/request.h"

namespace hvd::runtime {

class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::string_view name() const = 0;  // "gloo allreduce"
  virtual bool enabled(const Response& response, std::span<const Entry> entries) const = 0;
  virtual Status execute(const Response& response, std::span<Entry> entries) = 0;
  virtual void abort() = 0;
};

}  // namespace hvd::runtime
