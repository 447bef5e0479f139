// The layout of the shared-memory segment of one host:
//
//     | head: events, sets | steps: a line for each set and rank | slots: one for each rank |
//     | heads of lanes: one for each lane and rank |
//     | chunks of rank 0: three of chunk_bytes | chunks of rank 1 | ...
//     | large chunks of rank 0: three of their size | large chunks of rank 1 | ...
//     | payloads of lanes
//
// All is zero at first, and all but the large chunks and the payloads of lanes is reserved when it
// is made. A view: it keeps the segment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/shm/futex_event.h"
#include "runtime/shm/segment.h"
#include "runtime/shm/spsc_ring.h"

namespace hvd::runtime {

// How far a rank has come in what a process set does.
struct alignas(kSharedLine) RankProgress {
  std::atomic<std::uint64_t> step;
  std::atomic<int> core;      // where it came there, once it has come to a step
  std::atomic<bool> in_heap;  // all tensors of its batch are in its heap (shared_heap.h)
  std::atomic<bool> failed;   // in an operation, for good
  std::atomic<bool> has_large_chunks;
  std::atomic<bool> crowded;  // it had to wait for cores (crowding.h)
};

// The messages of a rank and of its parent to each other (shm_mailbox.h), and what it moves.
struct RankSlot {
  alignas(kSharedLine) std::atomic<bool> polling;
  std::atomic<std::int64_t> stopped_at;  // if it is not: nanoseconds of the machine's clock
  alignas(kSharedLine) std::atomic<std::uint64_t> arrived;  // so many messages, from all
  SpscRing from_parent;
  SpscRing to_parent;
  // Bytes that this rank has sent and received over its connections: a sign of life for ranks that
  // wait for it in shared memory.
  alignas(kSharedLine) std::atomic<std::uint64_t> moved;
};

// How far a rank has come in a lane (lane/lane.h), and its payloads if they are as little as that.
struct alignas(kSharedLine) LaneHead {
  static constexpr std::size_t kRoom = 56;
  std::atomic<std::uint64_t> mark;
  std::byte payloads[2][kRoom];
};
static_assert(sizeof(LaneHead) == kSharedLine);

enum class ChunkSize { normal, large };

class ShmLayout {
 public:
  static constexpr std::size_t kChunks = 3;
  static constexpr std::size_t kSets = 256;  // in one generation
  static constexpr int kMaxRanks = 512;
  static constexpr int kLanes = 2048;        // in one generation
  static constexpr int kMostLaneRanks = 64;  // where more ranks share the memory there are none

  // Shared by so many ranks; the first of them makes it. Data that is larger than a chunk (whole
  // pages) is moved chunk by chunk.
  static Result<ShmLayout> create(int ranks, std::size_t chunk_bytes);
  static Result<ShmLayout> adopt(UniqueFd fd, int ranks, std::size_t chunk_bytes);

  int fd() const { return segment_->fd(); }
  // Large chunks are a multiple of normal ones, the smaller the more ranks there are, for the sake
  // of memory. Of more than 64 ranks they are as large as normal ones, and of no use.
  std::size_t chunk_bytes(ChunkSize size = ChunkSize::normal) const {
    return size == ChunkSize::normal ? window_bytes_ : large_factor(ranks_) * window_bytes_;
  }

  FutexEvent& event() const { return head().event; }
  // Ranks that wait for others to have ended an operation, and not only to come into one.
  std::atomic<std::uint32_t>& waiting_for_ends() const { return head().waiting_for_ends; }
  // Where the set's steps are; nothing if there were too many sets. All ranks come to the same.
  std::optional<std::size_t> place_of(int process_set) const;
  RankProgress& progress(std::size_t place, int rank) const;

  RankSlot& slot(std::size_t rank) const { return slots()[rank]; }
  // To touch a large one before that rank has reserved it can end the process (SIGBUS).
  std::byte* chunk(int rank, std::size_t index, ChunkSize size = ChunkSize::normal) const;
  // A rank reserves its own ones. They are written once, so that their first use costs no page
  // fault.
  Status reserve_large_chunks(int rank) const;

  // A change in a lane: all members have come, or one of them leaves it.
  FutexEvent& lane_event() const { return head().lane_event; }
  LaneHead& lane_head(int lane, int position) const;
  // Bytes for the payloads of all lanes.
  static std::size_t lane_bytes(int ranks);
  // To touch payloads that no rank has reserved can end the process (SIGBUS).
  std::byte* lane_payloads() const { return segment_->data() + lanes_begin(); }
  Status reserve_lane_payloads(std::size_t offset, std::size_t bytes) const;

 private:
  struct Head {
    alignas(kSharedLine) FutexEvent event;
    alignas(kSharedLine) std::atomic<std::uint32_t> waiting_for_ends;
    alignas(kSharedLine) FutexEvent lane_event;
    alignas(kSharedLine) std::atomic<std::uint32_t> sets[kSets];  // number of a set + 1
  };

  ShmLayout(std::shared_ptr<Segment> segment, int ranks, std::size_t chunk_bytes)
      : segment_(std::move(segment)), ranks_(ranks), window_bytes_(chunk_bytes) {}
  static std::size_t head_bytes(int ranks);
  static std::size_t large_factor(int ranks);
  static std::size_t reserved_bytes(int ranks, std::size_t chunk_bytes);
  static std::size_t total_bytes(int ranks, std::size_t chunk_bytes);
  Head& head() const { return *reinterpret_cast<Head*>(segment_->data()); }
  RankProgress* lines() const {
    return reinterpret_cast<RankProgress*>(segment_->data() + sizeof(Head));
  }
  RankSlot* slots() const { return reinterpret_cast<RankSlot*>(lines() + lines_of(ranks_)); }
  LaneHead* lane_heads() const {
    return reinterpret_cast<LaneHead*>(slots() + static_cast<std::size_t>(ranks_));
  }
  static std::size_t lane_heads_of(int ranks) {
    return ranks > kMostLaneRanks ? 0 : static_cast<std::size_t>(kLanes) * ranks;
  }
  std::size_t lanes_begin() const {
    return total_bytes(ranks_, window_bytes_) - lane_bytes(ranks_);
  }
  static std::size_t lines_of(int ranks) { return kSets * static_cast<std::size_t>(ranks); }

  std::shared_ptr<Segment> segment_;
  int ranks_;
  std::size_t window_bytes_;
};

}  // namespace hvd::runtime
