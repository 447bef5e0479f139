// The entries of one rank, from enqueue() to their callback. Safe from any thread.
//
// A name is taken from push() until finish() or close(): a second entry under it, in the same
// process set, is an error at once. So is the name of a group, and everything while this rank's
// join is in flight.
//
// Programs use the same names in every step. So each name has a slot, which stays when its entry
// has ended, and in which the next one is put: it knows what was agreed about the last one, and
// whether the next one asks for the same. Of those that nobody uses the oldest go, once there are
// more than kMaxIdle. Programs also keep to the order of the step before, as a rule: whoever looks
// for a slot looks first at the one after that which was last found.
//
// It also knows which process sets there are for this rank's calls: they begin and end with the
// responses that say so, where the executor works.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "runtime/core/request.h"
#include "runtime/negotiation/process_sets.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/negotiation/traffic.h"

namespace hvd::runtime {

class TensorQueue {
 public:
  static constexpr std::size_t kMaxIdle = 4096;

  TensorQueue(int rank, ProcessSets sets) : rank_(rank), sets_(std::move(sets)) {}

  // Where the entries of a name lie, one after the other. From take() to finish() the entry belongs
  // to whoever took it; else it is guarded by the queue.
  struct Slot {
    Entry entry;
    bool busy = false;  // the entry is in flight
    bool taken = false;
    // What ran last under this name, if the cache keeps it; and whether the entry asks for that.
    SharedTensor agreed = nullptr;
    bool is_agreed = false;  // what the entry asks for, or the last one did
    const TensorKey* key = nullptr;
    std::list<Slot*>::iterator place = {};  // in busy_ or idle_
  };
  using Slots = std::vector<Slot*>;

  // All of them or none, and then they are moved from. `first` becomes true if nothing waited to be
  // drained: somebody must be woken.
  Failure push(std::span<Entry> entries, bool& first);
  // What was pushed since the last call, in its order.
  std::vector<Wanted> drain();
  // All entries of these tensors are plain (Entry::is_plain()), as far as they are there.
  bool all_plain(const std::vector<SharedTensor>& tensors);
  // The entries of these tensors, to be run: they stay known, but close() no longer returns them. A
  // name that is not there, or not drained yet, is left out: no response can mean it. `decided`,
  // `begun`: Course.
  void take(const std::vector<SharedTensor>& tensors, std::int64_t decided, std::int64_t begun,
            Slots& slots);
  // These have ended: their names may be used again, and their slots are not to be touched.
  void finish(const Slots& slots);
  // From now on push() returns `why`. Returns the entries that nobody has taken; only the first
  // call does anything.
  std::vector<Entry> close(const Failure& why);
  // Blocks until no entry is left, then closes; false at the deadline, and nothing is closed then.
  bool close_when_empty(const Failure& why, TimePoint deadline);
  bool wait_empty(TimePoint deadline) const;  // false: something is left at the deadline
  std::size_t size() const;
  // All that is in flight, in its order. The queue stands still meanwhile.
  void visit(const std::function<void(const Entry&)>& visitor) const;
  // How long something has been in flight until now, in all.
  Duration busy_time(TimePoint now) const;

  // The members of a process set, or why there is none.
  Result<RankSet> members(int process_set) const;
  std::vector<int> process_sets() const;
  // The next process set, of these ranks.
  void open_set(const RankSet& members);
  // The process set is no more; takes what nobody has taken of it.
  void close_set(int process_set, Slots& slots);

 private:
  Status check(const Request& request, const Slot* slot) const;
  Status check_groups(std::span<const Entry> entries) const;
  Slot* find(const TensorKeyView& key);
  Slot* find_idle_first(const TensorKeyView& key);
  static void fetch_after(std::list<Slot*>::iterator place, const std::list<Slot*>& of);
  Slot* slot_of(const ResponseTensor& tensor);
  Slot& add_slot(const Request& request);
  void put(Slot& slot, Entry&& entry, std::int64_t now);
  void release(Slot& slot);
  void remember(Slot& slot, const SharedTensor& agreed);
  void drop(Slot& slot);
  void note_end();

  mutable std::mutex mutex_;
  mutable std::condition_variable emptied_;
  const int rank_;
  ProcessSets sets_;
  std::unordered_map<TensorKey, Slot, TensorKeyHash, TensorKeyEqual> slots_;
  std::unordered_map<CacheId, Slot*> by_id_;            // of Slot::agreed
  std::list<Slot*> busy_;                               // what is in flight, in its order
  std::list<Slot*> idle_;                               // the oldest first
  std::list<Slot*>::iterator next_idle_ = idle_.end();  // that is asked for next, probably
  // By process set and name: how many tensors of a group are in flight.
  std::unordered_map<TensorKey, int, TensorKeyHash, TensorKeyEqual> groups_;
  std::uint64_t pushed_ = 0;   // so many
  Slots undrained_;            // of the newest of them, unless their set was closed
  std::uint64_t drained_ = 0;  // so many of the oldest
  bool joined_ = false;        // this rank's join is in flight
  Failure closed_;
  TimePoint busy_since_ = kNever;  // kNever: nothing is in flight
  Duration busy_time_{};           // before that
};

}  // namespace hvd::runtime
