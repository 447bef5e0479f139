// How ranks of one host work together in shared memory: they meet.
//
// A Host is this rank's place among those that share its host, one per world. A Meeting is one
// operation of those members of a process set that take part in it; all of them must make it, in
// the order of the operations, and then call the same functions of it. In its steps everybody
// writes into the own window, and reads those of the others after a sync():
//
//     windows    w                    w + 1                w + 2
//     write w -- sync -- read w, write w + 1 -- sync -- read w + 1, write w + 2 -- ...
//
// There are three windows, one after another: what is written after a sync() was read for the last
// time before it, even by those who go on reading window w while others write w + 1 and w + 2. So
// one sync() for each window is enough.
//
// Waiting spins as long as each rank can have a core of its own, then sleeps; abort() wakes this
// rank's waiter at once and for ever, whatever the others do.
//
// All is called by one thread at a time, by the executor, but for abort(), which may come from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/shm/host_memory.h"
#include "runtime/shm/window_writer.h"

namespace hvd::runtime {

class Host {
 public:
  struct Options {
    std::chrono::milliseconds timeout;  // for one that the others wait for
    bool own_core = true;               // for each of them: who waits spins before he sleeps
  };
  // `ranks`: those of the world on this host, ascending; `rank`: the own position among them.
  Host(HostMemory memory, std::vector<int> ranks, int rank, const Options& options);

  // Whether they all are on this host, and the set has a place; the same on all of them.
  bool serves(int process_set, std::span<const int> ranks);
  // Whether at least two of them are, so that these can meet; the same on all that are.
  bool serves_part(int process_set, std::span<const int> ranks);
  // An operation of the set in which this rank has no part.
  void skip(int process_set) { ++operations_[process_set]; }

  void abort();
  bool aborted() const { return aborted_; }

 private:
  friend class Meeting;
  // Of a set in the memory; looked for when it is first needed.
  struct Place {
    std::size_t here = 0;  // of its ranks
    bool looked_for = false;
    std::optional<std::size_t> index = {};
  };
  Place& place_for(int process_set, std::span<const int> ranks);
  bool found(int process_set, Place& place);
  // What the same ranks of a set have done together.
  struct Team {
    std::size_t windows = 0;
  };
  using TeamKey = std::pair<int, std::vector<int>>;  // the set, and world ranks
  struct Step {
    std::vector<const std::atomic<std::uint64_t>*> of;
    std::uint64_t value = 0;
  };

  int local_of(int world_rank) const;
  std::size_t place_of(int process_set);
  // Until all have come to the step.
  Status await(const Step& step, std::span<const int> ranks, bool patiently = false);
  bool reached(const Step& step) const;

  HostMemory memory_;
  WindowWriter writer_;
  std::vector<int> ranks_;
  int rank_;
  Options options_;
  std::map<int, Place> places_;
  bool full_ = false;                        // and that was said
  std::map<int, std::uint64_t> operations_;  // of each set
  std::map<TeamKey, Team> teams_;
  // The last meeting, whose other members may still be reading this rank's windows.
  const Team* last_team_ = nullptr;
  std::vector<int> last_ranks_;
  Step last_end_;
  std::atomic<bool> aborted_ = false;
};

class Meeting {
 public:
  // `ranks`: those of the world that take part, at least two, this one among them at `rank`.
  Meeting(Host& host, int process_set, std::span<const int> ranks, int rank);
  // Unless end() was called the operation has failed, and with it the world: the others must not
  // take this rank for one that has done its part, and wait until they are aborted, too.
  ~Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(locals_.size()); }
  std::size_t index() const { return static_cast<std::size_t>(rank_); }

  // Before anything is written: nobody reads this rank's windows any more.
  Status open();
  // Of each window, in bytes.
  std::size_t capacity() const { return host_.memory_.window_bytes(); }

  // The window of the rank at that position that is `ahead` of the current one.
  std::byte* window(int rank, std::size_t ahead = 0) const;
  // Copies much into the own ones with those stores that are the cheaper ones here; what is little
  // may be written there directly.
  WindowWriter& writer() const { return host_.writer_; }
  void next_window() { ++team_->windows; }
  // Everything that was written before is there for all who return. Patiently: somebody has
  // something else to do first, and spinning for so long would only cost.
  Status sync(bool patiently = false);
  // The operation has been done, and what was read in it was read for the last time.
  void end();

 private:
  Host& host_;
  std::vector<int> ranks_;   // of the world
  std::vector<int> locals_;  // on this host
  int rank_;
  std::size_t place_;
  Host::Team* team_;
  Host::Step step_;
  bool opened_ = false;
  std::atomic<std::uint64_t>& own_;
};

}  // namespace hvd::runtime
