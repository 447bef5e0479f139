// A world: this rank's membership in one generation of the job, as an object. It owns the pipeline
//
//     enqueue() -> tensor queue -> negotiation -> fusion -> executor -> callback
//
// (docs/runtime.md) with three threads: the control loop, the executor, and the door of the data
// connections, which sleeps once they are made. A world of one makes no socket. Many worlds may
// live in one process.
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

// How members tell each other their addresses before they are connected.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Publishes `blob` as this member's, and returns everybody's, by rank, as soon as all are there.
  // At the deadline the error names the ranks that are missing.
  virtual Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) = 0;
};

class World {
 public:
  // Blocks until all members are there (at most config.meet_timeout) and this rank is connected to
  // those that it needs (at most config.connect_timeout). A world of one does not use the exchange.
  static Result<std::unique_ptr<World>> create(const WorldSpec& spec, Exchange& exchange);
  // Without shutdown() before it, the others learn that this rank is gone.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;

  // Takes a request on. If it returns an error, `entry.done` is never called; else exactly once.
  Failure enqueue(Entry entry);
  // All of them or none; all tensors of a group must come together.
  Failure enqueue(std::vector<Entry> entries);
  // For a thread of the program that is about to wait for a callback of this world: it does what
  // this rank has to do for the others and for itself, which so need not wake any thread, until
  // done(). May return before that, if it is of no help: then it is to wait as if it had not asked.
  // Callbacks that only wake are called on this thread, too. Done() must not throw.
  void help_until(const std::function<bool()>& done);
  // What a thread in help_until() waits for has come, and more is to be done before a callback of
  // this world returns.
  void tell_helper();
  // To be called on a thread of this world that runs operations. Must not throw.
  void post(std::function<void()> errand);
  // Whoever helps stops to, and this rank leaves without shutdown() unless that was before: as if
  // it was destroyed, which it is not as long as somebody holds it.
  void leave_at_once();
  // The members of a process set, or not_found.
  Result<RankSet> process_set(int id) const;
  std::vector<int> process_sets() const;  // all that there are, ascending
  // What this rank has asked for so far: how well the response cache does.
  AskedCounts asked() const;
  // Ends everything in flight on all members, for the reason given.
  void abort(const Failure& why);
  // Why the world failed; ok while it has not.
  Failure failure() const;
  // Of a world that has failed: blocks until nothing touches the memory of its entries any more;
  // false if that is not so at the deadline.
  bool settle(TimePoint deadline) const;
  // Records all ranks into this file on rank 0's host (docs/timeline.md). Rank 0 only, one at a
  // time. The second blocks until the file is complete; deadline_exceeded: some ranks did not
  // report.
  Status start_timeline(const std::string& path, bool mark_cycles);
  Status stop_timeline(TimePoint deadline);
  // What is in flight on this rank, and what ended last, in words for a person.
  struct Doing {
    std::string in_flight;
    std::string last;
  };
  Doing doing() const;
  const Config& config() const;
  // This rank's flight recorder is to be written, for this reason.
  void dump(std::string reason);
  // Waits for what this rank has in flight, then until all members want to leave. An error says why
  // this could not be; deadline_exceeded: somebody did not come. Afterwards nothing can be
  // enqueued.
  Failure shutdown(TimePoint deadline);

 private:
  class Impl;
  explicit World(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::runtime
