// The entries of one rank, from enqueue() to their callbacks. Safe from any thread.
//
// A name is in use from push() until finish() or close(): a second entry under it, in the same
// process set, is refused. The same applies to the name of a group, and every request is refused
// while this rank's join is in flight.
//
// Programs use the same names in every step. So each name has a slot, which stays when its entry
// has ended and which the next entry reuses: it knows the cached response of the last entry, and
// whether the next one requests the same. Once more than kMaxIdle slots are unused, the oldest ones
// are dropped. Programs also usually keep the order of the step before: a lookup first tries the
// slot behind the one that was found last.
//
// A small allreduce that is repeated may have a lane (lane/lane.h): its payload is published in
// push(), and it is not drained while it is there. Whoever waits takes it from there when all ranks
// have published theirs. One that leaves the lane waits to be drained, as if it had just been
// pushed.
//
// It also knows which process sets this rank's calls can use: sets begin and end with the responses
// that say so, on the executor's thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "runtime/core/request.h"
#include "runtime/core/work_meter.h"
#include "runtime/lane/lane.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/process_sets.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/shm/shm_layout.h"

namespace hvd::runtime {

class TensorQueue {
 public:
  static constexpr std::size_t kMaxIdle = 4096;

  // `meter` counts what ends here, and how long entries wait for other ranks. It outlives this.
  TensorQueue(int rank, ProcessSets sets, WorkMeter& meter)
      : rank_(rank), sets_(std::move(sets)), meter_(meter) {}
  ~TensorQueue();
  TensorQueue(const TensorQueue&) = delete;
  TensorQueue& operator=(const TensorQueue&) = delete;

  // Holds the entries of a name, one after the other. From take() to finish() the entry belongs to
  // its taker; otherwise it is guarded by the queue.
  struct Slot {
    Entry entry;
    bool busy = false;  // the entry is in flight
    bool taken = false;
    // The tensor that ran last under this name, if the cache keeps it.
    SharedTensor agreed = nullptr;
    bool is_agreed = false;    // the entry, or the last one, requests just that
    bool counts_steps = true;  // it is a name of the program
    std::uint64_t step = 0;    // in which the name was used last
    Lane* lane = nullptr;      // the open one of the name; its entry is there if the lane is in use
    const TensorKey* key = nullptr;
    std::list<Slot*>::iterator place = {};  // in busy_ or idle_
  };
  using Slots = std::vector<Slot*>;

  // Takes all entries or none. `first` becomes true if no entry waited to be drained, or lanes were
  // unwatched: then a thread must be woken.
  Failure push(std::span<Entry> entries, bool& first);
  // The requests of the entries pushed since the last call, in their order.
  std::vector<SubmittedRequest> drain();
  bool any_to_drain() const;
  // Whether all entries of these tensors that are here are plain (Entry::is_plain()).
  bool all_plain(const std::vector<SharedTensor>& tensors);
  // Takes the entries of these tensors for execution: close() no longer returns them. A name that
  // is not here, or not drained yet, is left out, since no response can mean it. `decided`,
  // `begun`: see EntryTimes. `lanes`: those that their names are given (Response::lanes).
  void take(const std::vector<SharedTensor>& tensors, std::int64_t decided, std::int64_t begun,
            Slots& slots, std::span<const LaneSpot> lanes = {});
  // These entries have ended: their names are free, and the caller must not touch the slots again.
  void finish(const Slots& slots);
  // From now on push() returns `why`; of several reasons the first one counts.
  void refuse(const Failure& why);
  // The same, and returns the entries that have not been taken.
  std::vector<Entry> close(const Failure& why);
  bool wait_empty(TimePoint deadline) const;  // entries are left at the deadline
  std::size_t size() const;
  // Visits all entries in flight, in their order, under the queue's lock.
  void visit(const std::function<void(const Entry&)>& visitor) const;
  // The total time during which entries were in flight, until now.
  Duration busy_time(TimePoint now) const;

  // --- lanes ---

  // Once, before the first response: the memory of all ranks of the world.
  void use_lanes(ShmLayout memory);
  bool has_lanes() const { return lanes_.has_value(); }
  FutexEvent& lane_event() const { return lanes_->event(); }
  // leave_lanes(): entries in lanes leave, unless they are complete, and all lanes are closed. Then
  // entries may wait to be drained. allow_lanes(false) does the same, and no more lanes are entered
  // until they are allowed again.
  void allow_lanes(bool allowed);
  void leave_lanes();
  // Some entry is in a lane.
  bool any_in_lanes() const { return in_lanes_count_.load(std::memory_order_relaxed) > 0; }
  // Some of them can be taken, or must leave. Looks at so many at most, at others each time.
  bool any_to_take_from_lanes(std::size_t most);
  // Takes entries that are complete for execution; the others of a lane that is closed wait to be
  // drained. Returns how many do. All: also those that nobody waits for; entries that are older
  // than `patience` leave their lanes.
  std::size_t take_some_from_lanes(std::int64_t now, Slots& slots);
  std::size_t take_all_from_lanes(std::int64_t now, Duration patience, Slots& slots);
  // Since push() has said `first` for lanes: take_all_from_lanes() has to be called now and then.
  bool are_lanes_watched() const { return lanes_watched_.load(std::memory_order_relaxed); }
  // False if nothing is in lanes, nor was since the last call: then they are unwatched.
  bool keep_watching_lanes();
  // Entries that were reduced in lanes.
  std::uint64_t lane_uses() const { return lane_uses_.load(std::memory_order_relaxed); }

  // The members of a process set, or an error if it does not exist.
  Result<RankSet> members(int process_set) const;
  std::vector<int> process_sets() const;
  // Its members alone have added it; false if it does not exist.
  bool is_by_members(int process_set) const;
  // Adds the next process set, of these ranks.
  void open_set(const RankSet& members, bool by_members);
  // Removes the process set, and takes those of its entries that have not been taken.
  void close_set(int process_set, Slots& slots);

 private:
  Status check(const Request& request, const Slot* slot) const;
  Status check_groups(std::span<const Entry> entries) const;
  Slot* find(const TensorKeyView& key);
  Slot* find_idle_first(const TensorKeyView& key);
  static void fetch_after(std::list<Slot*>::iterator place, const std::list<Slot*>& of);
  Slot* slot_of(const ResponseTensor& tensor);
  Slot& add_slot(const Request& request);
  void count_step(Slot& slot, std::int64_t now);
  void put(Slot& slot, Entry&& entry, std::int64_t now);
  void release(Slot& slot);
  void remember(Slot& slot, const SharedTensor& agreed);
  void drop(Slot& slot);
  void note_end();
  void publish_newest(std::size_t entries);
  void set_lane(Slot& slot, const LaneSpot& spot);
  static void close_lane(Slot& slot);
  void take_from_lane(Slot& slot, std::int64_t now, Slots& slots);
  void leave_lane(Slot& slot);
  bool lanes_are_over() const { return joined_ || !lanes_allowed_ || !closed_.ok(); }
  void settle_lanes(std::optional<int> process_set = {});
  template <typename Look>
  std::size_t take_from_lanes(std::int64_t now, Slots& slots, const Look& look);
  // So many entries more, or fewer, wait for other ranks.
  void add_waiting(std::size_t entries, std::int64_t now);
  void subtract_waiting(std::size_t entries, std::int64_t now);

  mutable std::mutex mutex_;
  mutable std::condition_variable emptied_;
  const int rank_;
  ProcessSets sets_;
  WorkMeter& meter_;
  std::size_t waiting_ = 0;  // entries that have not been taken
  // The program's step, from 1: a new one begins when a name is used again.
  std::uint64_t step_ = 1;
  std::unordered_map<TensorKey, Slot, TensorKeyHash, TensorKeyEqual> slots_;
  std::unordered_map<CacheId, Slot*> by_id_;  // of Slot::agreed
  std::list<Slot*> busy_;  // slots with an entry in flight, in the order of push()
  std::list<Slot*> idle_;  // unused slots, the oldest first
  // The slot that the next push() probably needs.
  std::list<Slot*>::iterator next_idle_ = idle_.end();
  // How many tensors of each group, by process set and name, are in flight.
  std::unordered_map<TensorKey, int, TensorKeyHash, TensorKeyEqual> groups_;
  std::uint64_t pushed_ = 0;   // so many
  Slots undrained_;            // the newest slots, unless their process set was removed
  std::uint64_t drained_ = 0;  // number of entries drained so far
  bool joined_ = false;        // this rank's join is in flight
  std::optional<Lanes> lanes_;
  bool lanes_allowed_ = true;
  bool lanes_used_ = false;  // since keep_watching_lanes()
  Slots in_lanes_;           // entries in lanes that have not been taken
  std::atomic<std::size_t> in_lanes_count_ = 0;
  std::atomic<std::uint64_t> lane_uses_ = 0;
  std::atomic<bool> lanes_watched_ = false;
  Failure closed_;
  TimePoint busy_since_ = kNever;  // kNever: nothing is in flight
  Duration busy_time_{};           // the total before busy_since_
};

}  // namespace hvd::runtime
