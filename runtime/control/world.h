// A world: this rank's membership in one generation of the job, as an object. It owns the pipeline
//
//     enqueue() -> tensor queue -> negotiation -> fusion -> executor -> callback
//
// (docs/internals/worker.md) with three threads: the control loop, the executor, and the acceptor
// of data connections, which sleeps once they are made. A world of one makes no socket. Many worlds
// may live in one process.
//
// create() and shutdown() block and belong to one thread at a time; enqueue(), abort() and the
// getters are safe from any. After a failure every call returns the first cause of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/core/failure.h"
#include "runtime/core/request.h"
#include "runtime/core/world_spec.h"
#include "runtime/negotiation/interval_set.h"

namespace hvd::runtime {

// The means by which members exchange their addresses before they are connected.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Publishes `blob` as this member's, and returns the blobs of all members, by rank, as soon as
  // all are there. At the deadline the error names the ranks that are missing.
  virtual Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) = 0;
};

class World {
 public:
  // Blocks until all members are there (at most config.rendezvous_timeout) and this rank is
  // connected to its neighbours (at most config.connect_timeout). A world of one does not use the
  // exchange.
  static Result<std::unique_ptr<World>> create(const WorldSpec& spec, Exchange& exchange);
  // Without a shutdown() before it, the other members see this rank as lost.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  // Whether operations make progress while this rank computes. Where all ranks are on one host and
  // outnumber its cores, operations only take turns with the computation.
  bool overlaps_computation() const;
  // Whether callers do well to pack many small operations into one: all ranks are on one host,
  // where one operation more takes less than the others save, and no timeline is to show them all.
  bool may_pack() const;

  // Enqueues a request. If it returns an error, `entry.done` is never called; else it is called
  // exactly once.
  Failure enqueue(Entry entry);
  // All of them or none; all tensors of a group must be in one call.
  Failure enqueue(std::vector<Entry> entries);
  // For an application thread that is about to wait for a callback of this world: the thread drives
  // the world's progress itself until done() returns true, so that no other thread has to be woken.
  // May return earlier, if this thread cannot be of use: then the caller has to wait in the
  // ordinary way. Callbacks that only wake a thread are called on this thread, too. done() must not
  // throw. With a deadline this thread executes no operations, which may take longer.
  void progress_until(const std::function<bool()>& done, TimePoint deadline = kNever);
  // The result that a thread in progress_until() waits for has come, from within a callback of this
  // world that goes on for a while.
  void notify_caller();
  // Runs `task` on the thread that executes operations. It must not throw.
  void post(std::function<void()> task);
  // Ends all progress_until() calls, and leaves without shutdown(), unless that was called before:
  // the others see this rank as lost, although the object lives on as long as it is referenced.
  void abandon();
  // The members of a process set, or not_found.
  Result<RankSet> process_set(int id) const;
  // The members of a process set alone have added it; false if it does not exist.
  bool is_by_members(int id) const;
  std::vector<int> process_sets() const;  // all that exist, ascending
  // How well the response cache has served this rank's requests so far.
  CacheStats cache_stats() const;
  // Fails everything in flight on all members, for the reason given.
  void abort(const Failure& why);
  // The cause of the world's failure; ok while it has not failed.
  Failure failure() const;
  // After a failure: blocks until nothing accesses the memory of entries any more; false at the
  // deadline.
  bool wait_idle(TimePoint deadline) const;
  // Records all ranks into this file on rank 0's host (docs/timeline.md). Rank 0 only, one timeline
  // at a time. stop_timeline() blocks until the file is complete; deadline_exceeded: some ranks did
  // not report.
  Status start_timeline(const std::string& path, bool mark_cycles);
  Status stop_timeline(TimePoint deadline);
  using Activity = RankActivity;
  Activity activity();
  // What this rank did when the world failed, and what it does now while it has not.
  Activity last_activity();
  const Config& config() const;
  // Writes this rank's flight recorder, with this reason.
  void dump(std::string reason);
  // From now on nothing can be enqueued. Waits for this rank's operations in flight, then until all
  // members call shutdown(). Operations that need a member which does not request them any more
  // fail, on all ranks. deadline_exceeded: some member does neither.
  Failure shutdown(TimePoint deadline);

 private:
  class Impl;
  explicit World(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::runtime
