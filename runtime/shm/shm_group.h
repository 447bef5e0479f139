// Collectives of the ranks of one host in shared memory.
//
// A ShmGroup is this rank's place among those that share its host, one per world. A ShmCollective
// is one operation of those members of a process set that take part in it. All of them create it,
// in the order of the operations, and call the same functions of it. In each step a rank writes
// into its own chunk, and reads the chunks of the others after a sync():
//
//     chunks     w                    w + 1                w + 2
//     write w -- sync -- read w, write w + 1 -- sync -- read w + 1, write w + 2 -- ...
//
// Each rank has three chunks, used in turn: a chunk that is written after a sync() was read for the
// last time before it, even by ranks that still read chunk w while others write w + 1 and w + 2. So
// one sync() for each chunk is enough.
//
// While other programs take the cores the ranks use large chunks, of which each has three others
// (crowding.h). In each collective all tell whether they are short of cores and whether they have
// the memory. If it has at least two steps, the next collective of the same ranks goes by that.
//
// A waiting rank spins as long as each rank can have a core of its own, then sleeps. Where it finds
// that it waits on the core of a rank that is yet to come, a thread of hvd moves first. abort()
// wakes this rank's waiter at once and for good, whatever the others do.
//
// For one thread at a time, the executor; abort() is safe from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/core/brief_wait.h"
#include "runtime/shm/chunk_writer.h"
#include "runtime/shm/crowding.h"
#include "runtime/shm/shm_layout.h"

namespace hvd::runtime {

class ShmGroup {
 public:
  struct Options {
    std::chrono::milliseconds timeout;  // silence of all ranks that the others wait for
    bool own_core = true;               // for each rank: a waiter spins before it sleeps
    // For tests: whether cores are crowded. Null: it is measured.
    const std::atomic<bool>* crowded = nullptr;
    double ranks_per_core = 1;  // of this host, at least 1
  };
  // `ranks`: those of the world on this host, ascending; `rank`: the own position among them.
  // `heaps`: those of the ranks (shared_heap.h), or none. They are mapped when a tensor is in the
  // own one.
  ShmGroup(ShmLayout memory, std::vector<int> ranks, int rank, const Options& options,
           std::vector<UniqueFd> heaps = {});

  // Whether they all are on this host, and the set has a place; the same on all of them.
  bool serves(int process_set, std::span<const int> ranks);
  // Whether at least two of them are, so that these can meet; the same on all that are.
  bool serves_part(int process_set, std::span<const int> ranks);
  // An operation of the set in which this rank has no part.
  void skip(int process_set) { ++operations_[process_set]; }

  // Tells the others that bytes move between this rank and other hosts: a rank that waits for this
  // one does not give up meanwhile. From any thread.
  void note_moved(std::size_t bytes);

  void abort();
  bool aborted() const { return aborted_; }

 private:
  friend class ShmCollective;
  // The place of a set in the memory; looked for when it is first needed.
  struct Place {
    std::size_t here = 0;  // of its ranks
    bool looked_for = false;
    std::optional<std::size_t> index = {};
  };
  Place& place_for(int process_set, std::span<const int> ranks);
  bool found(int process_set, Place& place);
  // The progress of those ranks of a set that take part together.
  struct Subgroup {
    std::size_t chunks = 0;
    ChunkSize chunk_size = ChunkSize::normal;
    std::size_t single_steps = 0;  // collectives of one step since chunks are large
  };
  using SubgroupKey = std::pair<int, std::vector<int>>;  // the set, and world ranks
  struct Step {
    std::vector<const RankProgress*> of;
    std::uint64_t value = 0;
  };

  // Whether this rank can read the heaps of all.
  bool map_heaps();
  // Gives this rank its large chunks, if they are of use and there is memory for them.
  void reserve_large_chunks();

  int local_of(int world_rank) const;
  std::size_t place_of(int process_set);
  // Until all have come to the step.
  Status await(const Step& step, std::span<const int> ranks, bool patiently = false);
  bool reached(const Step& step) const;
  // Bytes that the ranks which are yet to come to the step have moved over their connections.
  std::uint64_t moved_by_late(const Step& step, std::span<const int> ranks) const;
  // Where this rank would wait on the core of a rank that is yet to come to the step, its thread
  // moves to another one, if it is a thread of the runtime. False: they still share a core.
  bool seek_own_core(const Step& step);

  ShmLayout memory_;
  ChunkWriter writer_;
  std::vector<int> ranks_;
  int rank_;
  Options options_;
  std::vector<UniqueFd> heap_files_;             // until they are mapped
  std::vector<std::shared_ptr<Segment>> heaps_;  // of each rank, or none
  BriefWait brief_wait_;
  Crowding crowding_;
  std::optional<bool> has_large_chunks_;  // nothing: nobody has needed them yet
  static constexpr std::chrono::milliseconds kBetweenMoves{5};
  TimePoint next_move_;  // to another core, not before then
  Duration between_moves_ = kBetweenMoves;
  std::map<int, Place> places_;
  bool full_ = false;                        // and that was said
  std::map<int, std::uint64_t> operations_;  // of each set
  std::map<SubgroupKey, Subgroup> subgroups_;
  // The last collective, whose other members may still be reading this rank's chunks.
  const Subgroup* last_subgroup_ = nullptr;
  std::vector<int> last_ranks_;
  Step last_end_;
  std::atomic<bool> aborted_ = false;
};

class ShmCollective {
 public:
  // `ranks`: those of the world that take part, at least two, this one among them at `rank`.
  ShmCollective(ShmGroup& host, int process_set, std::span<const int> ranks, int rank);
  // Unless end() was called the operation has failed, and with it the world: the others must not
  // take this rank for one that has done its part, and wait until they are aborted, too.
  ~ShmCollective();
  ShmCollective(const ShmCollective&) = delete;
  ShmCollective& operator=(const ShmCollective&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(locals_.size()); }
  std::size_t index() const { return static_cast<std::size_t>(rank_); }

  // Before the first write: waits until no rank reads this rank's chunks any more.
  Status open();
  // The bytes of each chunk. The same on all ranks, in all of the operation.
  std::size_t capacity() const;
  // Says that the work of a step is that of so many chunks.
  void set_chunks_of_step(std::size_t chunks) { chunks_of_step_ = chunks; }

  // The chunk of the rank at that position that is `ahead` of the current one.
  std::byte* chunk(int rank, std::size_t ahead = 0) const;
  // Whether this rank can read the heaps of all ranks.
  bool map_heaps() { return host_.map_heaps(); }
  // The heap of the rank at that position; only if map_heaps() has returned true.
  const Segment& heap(int rank) const;
  // A rank tells before the first sync() whether all its tensors of the operation are in its heap
  // and it can read all heaps. After that sync() all ranks find the same number of such ranks. A
  // second sync() must follow.
  void tell_in_heap(bool is_so) { own_.in_heap = is_so; }
  int ranks_in_heap() const;
  // aborted: the operation has failed on some rank. The program of that rank has its tensors back
  // and may change them while other ranks read them. So a rank that has read tensors of others
  // calls this at the end.
  Status check_none_failed() const;
  // Copies much into the own ones with those stores that are the cheaper ones here; what is little
  // may be written there directly.
  ChunkWriter& writer() const { return host_.writer_; }
  void next_chunk() { ++subgroup_->chunks; }
  // Everything that was written before is there for all who return. Patiently: a rank has
  // other work to do first, and spinning for so long would only cost.
  Status sync(bool patiently = false);
  // The operation has been done, and what was read in it was read for the last time.
  void end();

 private:
  // For ranks that could wait on this one's core.
  void tell_core();
  void tell_failed();
  void tell_crowding();
  // Reads what all ranks have told, after the first sync(). That counts if there is a second one:
  // no rank tells anything else before it.
  void read_crowding();
  // At the end, after so many sync()s.
  void measure_crowding(std::uint64_t syncs);
  void choose_next_chunk_size(std::uint64_t syncs);
  // So many have been called.
  std::uint64_t syncs() const;

  ShmGroup& host_;
  std::vector<int> ranks_;   // of the world
  std::vector<int> locals_;  // on this host
  int rank_;
  std::size_t place_;
  ShmGroup::Subgroup* subgroup_;
  ShmGroup::Step step_;
  std::optional<Duration> without_core_;  // of its thread, at the kManySyncs-th
  std::size_t chunks_of_step_ = 1;
  bool some_crowded_ = false;
  bool all_have_large_chunks_ = false;
  bool opened_ = false;
  bool ended_ = false;
  RankProgress& own_;
};

}  // namespace hvd::runtime
