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
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/status.h"
#include "runtime/config.h"
#include "runtime/failure.h"
#include "runtime/interrupt.h"
#include "runtime/negotiation/interval_set.h"
#include "runtime/request.h"

namespace hvd::runtime {

struct Member {
  std::string worker;   // "host#slot", named in errors
  std::string host;     // named in errors
  std::string address;  // an IP address where the others reach it
};

struct WorldSpec {
  WorldSpec(int own_rank, std::vector<Member> all, std::uint64_t number, const Token& job_token)
      : rank(own_rank), members(std::move(all)), generation(number), token(job_token) {}

  int rank;
  std::vector<Member> members;  // members[r] is rank r
  std::uint64_t generation;     // peers of another one are refused
  Token token;
  Config config;
  // The ranks of each process set that there is from the start, and whether there may be others
  // later: the ranks must agree about it.
  std::vector<std::vector<int>> process_sets;
  bool dynamic_process_sets = true;
  // Instead of `process_sets`, if next_process_set is not 0: those of an earlier world, by number.
  std::map<int, std::vector<int>> restored_sets;
  int next_process_set = 0;
  // Ends it while it is formed, too; null: nobody wants to. Stock Gloo hears of it late.
  std::shared_ptr<Interrupt> interrupt;
  // Called at most once, on a thread of the world, when it fails because this rank did not call in
  // time what others wait for, or did not reach the one that it joins them by. `why` goes on where
  // a sentence begins with the rank.
  std::function<void(const std::string& why)> on_own_stall = {};
  // Called on a thread of the world when a signal has asked for the flight recorder.
  std::function<void()> on_dump_signal = {};

  int size() const { return static_cast<int>(members.size()); }
  // Several hosts, and several ranks on one of them: going by hosts is something else than not.
  bool has_hosts_of_several() const;
};

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
