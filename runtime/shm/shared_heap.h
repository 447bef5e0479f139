// Memory of this process that the other ranks of its host can read. hvd::empty() allocates here,
// and tensors in it are reduced where they lie (ops/shm_in_place_allreduce.h).
//
// A process has one segment for its life, as large as the memory of the machine. Only those pages
// exist that are allocated, and a process that allocates nothing maps nothing. The ranks of a host
// pass the descriptors of their segments to each other when a world is formed, so later allocations
// need no message. No rank can write into the memory of another: a rank that is late, and reads on
// after the world has failed, changes nothing.
//
// Any thread may call. No call waits for another one's system call on tensors: the kernel takes
// seconds for gigabytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/shm/segment.h"

namespace hvd::runtime {

class SharedHeap {
 public:
  // The one of this process. It is never destroyed, since tensors may outlive everything else. A
  // process that is forked has a heap of its own, beside the tensors of its parent.
  static SharedHeap& of_process();

  // `bytes` of zeros, in whole pages. resource_exhausted: the machine has no more memory to share,
  // or the process may not map so much.
  Result<std::byte*> allocate(std::size_t bytes);
  // Frees memory that allocate() gave. A forked process does not free the memory of its parent.
  void free(const std::byte* memory);
  // Whether it is in this heap, or in that of a parent.
  bool owns(const void* memory) const;
  // Where these bytes begin in the segment; nothing: some of them are not in this heap.
  std::optional<std::uint64_t> offset_of(const void* memory, std::size_t bytes) const;

  // The descriptor of the segment, to hand on; -1: the machine gives none.
  int fd();

 private:
  explicit SharedHeap(const SharedHeap* parent);
  struct Range {
    std::size_t offset = 0;
    std::size_t size = 0;
  };
  // A range of so many bytes, in whole pages, that is neither free any more nor allocated yet.
  Result<Range> take_range(std::size_t bytes);
  // Under the mutex.
  Status open();
  Status map();
  void return_range(Range range);

  const SharedHeap* const parent_;  // that of the process that this one was forked from
  const pid_t owner_;
  std::atomic<const Segment*> there_ = nullptr;  // the segment, without the mutex

  std::mutex mutex_;
  UniqueFd file_;
  std::shared_ptr<Segment> segment_;              // once something was to be allocated
  std::map<std::size_t, std::size_t> free_;       // the size of each free range, by its offset
  std::map<std::size_t, std::size_t> allocated_;  // likewise
};

}  // namespace hvd::runtime
