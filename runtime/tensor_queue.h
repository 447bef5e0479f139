// The entries of one rank, from enqueue() to their callback. Safe from any thread.
//
// A name is taken from push() until finish() or close(): a second entry under it is an error at
// once.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "runtime/request.h"

namespace hvd::runtime {

class TensorQueue {
 public:
  // `first` becomes true if nothing waited to be drained: somebody must be woken.
  Failure push(Entry entry, bool& first);
  // Requests that were pushed since the last call, in their order.
  std::vector<Request> drain();
  // The entries of these tensors, to be run: they stay known, but close() no longer returns them. A
  // name that is not there, or not drained yet, is left out: no response can mean it.
  std::vector<Entry> take(const std::vector<ResponseTensor>& tensors);
  // Forgets names that were taken; they may be used again.
  void finish(const std::vector<Entry>& entries);
  // From now on push() returns `why`. Returns the entries that nobody has taken; only the first
  // call does anything.
  std::vector<Entry> close(const Failure& why);
  // Blocks until no entry is left, then closes; false at the deadline, and nothing is closed then.
  bool close_when_empty(const Failure& why, TimePoint deadline);
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  struct Waiting {
    Entry entry;
    bool drained = false;
  };
  std::unordered_map<std::string, Waiting> waiting_;
  std::unordered_set<std::string> names_;  // all that are in flight
  std::vector<Request> undrained_;
  Failure closed_;
};

}  // namespace hvd::runtime
