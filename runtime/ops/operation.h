// One way to run a response: over Gloo, through shared memory, over NCCL, within one process.
// The executor asks its operations in order of priority and runs the first that is enabled().
//
// enabled() and execute() are called by the executor only, one at a time, though not always on the
// same thread, on every member of the process set with the same response; enabled() must therefore
// answer the same on every rank. abort() may come from any thread at any time, also before and
// after: an execute() under way returns soon with an error, every later one at once.
//
// There is an entry for each tensor of the response, in its order. On a rank that has joined they
// were made up: input and output are null, and the operation puts neutral elements in their place
// and throws away what comes out.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/core/request.h"

namespace hvd::runtime {

// The members of a process set, as one of them sees it.
struct Group {
  int id = kGlobalSet;
  std::vector<int> ranks;  // of the world, ascending; position is the rank within the set
  int rank = 0;            // own position
  int size() const { return static_cast<int>(ranks.size()); }
};

// The work that begin() has begun is over: called once, from any thread.
using Completion = std::function<void(const Status& status)>;

class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::string_view name() const = 0;  // "gloo allreduce"
  virtual bool enabled(const Response& response, const Group& group) const = 0;
  // Fills `outcomes`, one for each entry: output and shape, and received splits.
  virtual Status execute(const Response& response, const Group& group, const Entries& entries,
                         std::span<Outcome> outcomes) = 0;
  // Whether it works on a device, beside the executor: then begin() is called in place of
  // execute(). The response, the entries and the outcomes stay where they are until `over` has been
  // called, which it is unless begin() returns an error; abort() hastens it.
  virtual bool goes_on() const { return false; }
  virtual Status begin(const Response& response, const Group& group, const Entries& entries,
                       std::span<Outcome> outcomes, Completion over) {  // NOLINT: others keep it
    HVD_RETURN_IF_ERROR(execute(response, group, entries, outcomes));
    over({});
    return {};
  }
  // Whether execute() says so before it sleeps (CallerProgressScope::about_to_sleep()).
  virtual bool gives_notice() const { return false; }
  // The process set is no more; by the executor.
  virtual void forget(int /*process_set*/) {}
  virtual void abort() = 0;
};

}  // namespace hvd::runtime
