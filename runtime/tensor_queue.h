// The entries of one rank, from enqueue() to their callback. Safe from any thread.
//
// A name is taken from push() until finish() or close(): a second entry under it, in the same
// process set, is an error at once. So is the name of a group, and everything while this rank's
// join is in flight.
//
// It also knows which process sets there are for this rank's calls: they begin and end with the
// responses that say so, on the executor's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "runtime/negotiation/process_sets.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/request.h"
#include "runtime/trace/recorder.h"

namespace hvd::runtime {

class TensorQueue {
 public:
  // `recorder`, if there is one, hears of all that is pushed and drained.
  TensorQueue(int rank, ProcessSets sets, trace::Recorder* recorder = nullptr)
      : rank_(rank), recorder_(recorder), sets_(std::move(sets)) {}

  // All of them or none, and then they are moved from. `first` becomes true if nothing waited to be
  // drained: somebody must be woken.
  Failure push(std::span<Entry> entries, bool& first);
  // Requests that were pushed since the last call, in their order.
  std::vector<Request> drain();
  // The entries of these tensors, to be run: they stay known, but close() no longer returns them. A
  // name that is not there, or not drained yet, is left out: no response can mean it.
  std::vector<Entry> take(const std::vector<SharedTensor>& tensors);
  // Forgets names that were taken; they may be used again.
  void finish(const std::vector<Entry>& entries);
  // From now on push() returns `why`. Returns the entries that nobody has taken; only the first
  // call does anything.
  std::vector<Entry> close(const Failure& why);
  // Blocks until no entry is left, then closes; false at the deadline, and nothing is closed then.
  bool close_when_empty(const Failure& why, TimePoint deadline);
  std::size_t size() const;
  // How long something has been in flight until now, in all.
  Duration busy_time(TimePoint now) const;

  // The members of a process set, or why there is none.
  Result<RankSet> members(int process_set) const;
  std::vector<int> process_sets() const;
  // The next process set, of these ranks.
  void open_set(const RankSet& members);
  // The process set is no more; returns what nobody has taken of it, for finish().
  std::vector<Entry> close_set(int process_set);

 private:
  struct InFlight {
    Entry entry;          // unless it is taken
    std::uint64_t order;  // of all that were pushed
    bool taken = false;
  };
  using Entries = std::unordered_map<TensorKey, InFlight, TensorKeyHash, TensorKeyEqual>;
  Status check(const Request& request) const;
  Status check_groups(std::span<const Entry> entries) const;
  void note_idle();
  Entry take(InFlight& in_flight);
  void forget(const Request& request);

  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  const int rank_;
  trace::Recorder* const recorder_;
  ProcessSets sets_;
  Entries in_flight_;
  // By process set and name: how many tensors of a group are in flight.
  std::unordered_map<TensorKey, int, TensorKeyHash, TensorKeyEqual> groups_;
  std::uint64_t pushed_ = 0;        // so many
  std::vector<Request> undrained_;  // of the newest of them, unless their set was closed
  std::uint64_t drained_ = 0;       // so many of the oldest
  bool joined_ = false;             // this rank's join is in flight
  Failure closed_;
  TimePoint busy_since_ = kNever;  // kNever: nothing is in flight
  Duration busy_time_{};           // before that
};

}  // namespace hvd::runtime
