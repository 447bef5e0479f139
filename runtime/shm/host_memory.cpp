#include "runtime/shm/host_memory.h"

#include "base/text.h"

namespace hvd::runtime {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

std::size_t HostMemory::head_bytes(int ranks) {
  return whole_pages(sizeof(Head) + lines_of(ranks) * sizeof(Line) +
                     static_cast<std::size_t>(ranks) * sizeof(Desk));
}

std::size_t HostMemory::total_bytes(int ranks, std::size_t window_bytes) {
  return head_bytes(ranks) + static_cast<std::size_t>(ranks) * kWindows * window_bytes;
}

Result<HostMemory> HostMemory::create(int ranks, std::size_t window_bytes) {
  if (ranks > kMaxRanks) {
    return Status(Code::resource_exhausted, cat(ranks, " ranks are too many for shared memory"));
  }
  auto segment = Segment::create(total_bytes(ranks, window_bytes));
  HVD_RETURN_IF_ERROR(segment.status());
  HVD_RETURN_IF_ERROR((*segment)->reserve(0, (*segment)->size()));
  return HostMemory(std::move(*segment), ranks, window_bytes);
}

Result<HostMemory> HostMemory::adopt(UniqueFd fd, int ranks, std::size_t window_bytes) {
  auto segment = Segment::adopt(std::move(fd), total_bytes(ranks, window_bytes));
  HVD_RETURN_IF_ERROR(segment.status());
  return HostMemory(std::move(*segment), ranks, window_bytes);
}

std::optional<std::size_t> HostMemory::place_of(int process_set) const {
  // A place is taken by whoever comes first, and never given up: so all find the same.
  const auto number = static_cast<std::uint32_t>(process_set) + 1;
  for (std::size_t place = 0; place < kSets; ++place) {
    std::uint32_t taken = 0;
    if (head().sets[place].compare_exchange_strong(taken, number) || taken == number) return place;
  }
  return std::nullopt;
}

std::atomic<std::uint64_t>& HostMemory::step(std::size_t place, int rank) const {
  return lines()[place * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank)].value;
}

std::byte* HostMemory::window(int rank, std::size_t index) const {
  const std::size_t before = static_cast<std::size_t>(rank) * kWindows + index;
  return segment_->data() + head_bytes(ranks_) + before * window_bytes_;
}

}  // namespace hvd::runtime
