// What the ranks of one host share, laid out in one segment:
//
//     | head: bell, which sets | steps: a line for each set and rank | desks: one for each rank |
//     | windows of rank 0: three of window_bytes | windows of rank 1 | ...
//
// All of it is reserved when it is made, and zero at first. A view: it belongs to whoever holds the
// segment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/shm/bell.h"
#include "runtime/shm/letter_box.h"
#include "runtime/shm/segment.h"

namespace hvd::runtime {

// Where a rank finds its letters, and leaves those to its parent (host_mail.h).
struct Desk {
  alignas(kSharedLine) std::atomic<bool> attended;
  std::atomic<std::int64_t> left_at;  // if it is not: nanoseconds of the machine's clock
  alignas(kSharedLine) std::atomic<std::uint64_t> arrived;  // so many letters, from all
  LetterBox from_parent;
  LetterBox to_parent;
};

class HostMemory {
 public:
  static constexpr std::size_t kWindows = 3;
  static constexpr std::size_t kSets = 256;  // in one generation
  static constexpr int kMaxRanks = 512;

  // Shared by so many ranks; the first of them makes it. What is larger than a window (whole pages)
  // is moved window by window.
  static Result<HostMemory> create(int ranks, std::size_t window_bytes);
  static Result<HostMemory> adopt(UniqueFd fd, int ranks, std::size_t window_bytes);

  int fd() const { return segment_->fd(); }
  std::size_t window_bytes() const { return window_bytes_; }

  Bell& bell() const { return head().bell; }
  // Ranks that wait for others to have ended an operation, and not only to come into one.
  std::atomic<std::uint32_t>& waiting_for_ends() const { return head().waiting_for_ends; }
  // Where the set's steps are; nothing if there were too many sets. All ranks come to the same.
  std::optional<std::size_t> place_of(int process_set) const;
  // How far the rank has come in what the set does.
  std::atomic<std::uint64_t>& step(std::size_t place, int rank) const;

  Desk& desk(std::size_t rank) const { return desks()[rank]; }
  std::byte* window(int rank, std::size_t index) const;

 private:
  struct Head {
    alignas(kSharedLine) Bell bell;
    alignas(kSharedLine) std::atomic<std::uint32_t> waiting_for_ends;
    alignas(kSharedLine) std::atomic<std::uint32_t> sets[kSets];  // number of a set + 1
  };
  struct alignas(kSharedLine) Line {
    std::atomic<std::uint64_t> value;
  };

  HostMemory(std::shared_ptr<Segment> segment, int ranks, std::size_t window_bytes)
      : segment_(std::move(segment)), ranks_(ranks), window_bytes_(window_bytes) {}
  static std::size_t head_bytes(int ranks);
  static std::size_t total_bytes(int ranks, std::size_t window_bytes);
  Head& head() const { return *reinterpret_cast<Head*>(segment_->data()); }
  Line* lines() const { return reinterpret_cast<Line*>(segment_->data() + sizeof(Head)); }
  Desk* desks() const { return reinterpret_cast<Desk*>(lines() + lines_of(ranks_)); }
  static std::size_t lines_of(int ranks) { return kSets * static_cast<std::size_t>(ranks); }

  std::shared_ptr<Segment> segment_;
  int ranks_;
  std::size_t window_bytes_;
};

}  // namespace hvd::runtime
