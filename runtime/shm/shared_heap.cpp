#include "runtime/shm/shared_heap.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>

namespace hvd::runtime {
namespace {

// As much as could ever be allocated.
std::size_t whole_machine() {
  const std::uint64_t memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes();
  return std::min(memory, most_file_bytes()) / page_bytes() * page_bytes();
}

}  // namespace

SharedHeap& SharedHeap::of_process() {
  static std::atomic<SharedHeap*> current = nullptr;
  SharedHeap* heap = current;
  while (heap == nullptr || heap->owner_ != ::getpid()) {
    std::unique_ptr<SharedHeap> fresh(new SharedHeap(heap));
    if (current.compare_exchange_strong(heap, fresh.get())) return *fresh.release();
  }
  return *heap;
}

SharedHeap::SharedHeap(const SharedHeap* parent) : parent_(parent), owner_(::getpid()) {}

Status SharedHeap::open() {
  if (file_) return {};
  auto file = Segment::create_file("hvd-heap", whole_machine());
  HVD_RETURN_IF_ERROR(file.status());
  file_ = std::move(*file);
  return {};
}

Status SharedHeap::map() {
  if (segment_) return {};
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    return {Code::resource_exhausted,
            "the address space of this process is limited (RLIMIT_AS, ulimit -v)"};
  }
  HVD_RETURN_IF_ERROR(open());
  UniqueFd file(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!file) return Status::from_errno("dup", errno);
  auto segment = Segment::adopt_heap(std::move(file), Segment::HeapOf::this_process);
  HVD_RETURN_IF_ERROR(segment.status());
  segment_ = std::move(*segment);
  there_ = segment_.get();
  free_.emplace(0, segment_->size());
  return {};
}

int SharedHeap::fd() {
  const std::lock_guard lock(mutex_);
  return open().ok() ? file_.get() : -1;
}

// The kernel takes seconds for gigabytes. The range is nobody else's meanwhile, so that it needs no
// lock.
Result<std::byte*> SharedHeap::allocate(std::size_t bytes) {
  const auto range = take_range(bytes);
  HVD_RETURN_IF_ERROR(range.status());
  const Status reserved = segment_->reserve(range->offset, range->size);
  const std::lock_guard lock(mutex_);
  if (!reserved.ok()) {
    return_range(*range);
    return reserved;
  }
  allocated_.emplace(range->offset, range->size);
  return segment_->data() + range->offset;
}

Result<SharedHeap::Range> SharedHeap::take_range(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  HVD_RETURN_IF_ERROR(map());
  if (bytes > segment_->size()) {
    return Status(Code::resource_exhausted, "the machine has less memory than that");
  }
  const std::size_t size = whole_pages(std::max<std::size_t>(bytes, 1));
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [size](const auto& range) { return range.second >= size; });
  if (found == free_.end()) {
    return Status(Code::resource_exhausted, "no memory is left to share");
  }
  const auto [offset, room] = *found;
  free_.erase(found);
  if (room > size) free_.emplace(offset + size, room - size);
  return Range{offset, size};
}

void SharedHeap::free(const std::byte* memory) {
  const auto where = offset_of(memory, 1);
  if (!where) return;
  Range range;
  {
    const std::lock_guard lock(mutex_);
    const auto found = allocated_.find(*where);
    if (found == allocated_.end()) return;
    range = {found->first, found->second};
    allocated_.erase(found);
  }
  segment_->give_back(range.offset, range.size);
  const std::lock_guard lock(mutex_);
  return_range(range);
}

void SharedHeap::return_range(Range range) {
  auto [offset, size] = range;
  const auto next = free_.lower_bound(offset);
  const bool joins_next = next != free_.end() && next->first == offset + size;
  if (joins_next) size += next->second;
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (joins_next) free_.erase(next);
  free_.emplace(offset, size);
}

bool SharedHeap::owns(const void* memory) const {
  return offset_of(memory, 1) || (parent_ != nullptr && parent_->owns(memory));
}

std::optional<std::uint64_t> SharedHeap::offset_of(const void* memory, std::size_t bytes) const {
  const Segment* const segment = there_;
  if (segment == nullptr) return std::nullopt;
  const std::less<const std::byte*> before;
  const auto* const begin = static_cast<const std::byte*>(memory);
  const std::byte* const end = segment->data() + segment->size();
  if (before(begin, segment->data()) || !before(begin, end)) return std::nullopt;
  if (bytes > static_cast<std::size_t>(end - begin)) return std::nullopt;
  return static_cast<std::uint64_t>(begin - segment->data());
}

}  // namespace hvd::runtime
