#include "runtime/shm/shm_layout.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace hvd::runtime {

std::size_t ShmLayout::head_bytes(int ranks) {
  return whole_pages(sizeof(Head) + lines_of(ranks) * sizeof(RankProgress) +
                     static_cast<std::size_t>(ranks) * sizeof(RankSlot) +
                     lane_heads_of(ranks) * sizeof(LaneHead));
}

std::size_t ShmLayout::large_factor(int ranks) {
  constexpr std::size_t kMost = 8;
  constexpr std::size_t kOfAllRanks = 128;
  return std::clamp<std::size_t>(kOfAllRanks / static_cast<std::size_t>(ranks), 1, kMost);
}

std::size_t ShmLayout::reserved_bytes(int ranks, std::size_t chunk_bytes) {
  return head_bytes(ranks) + static_cast<std::size_t>(ranks) * kChunks * chunk_bytes;
}

std::size_t ShmLayout::total_bytes(int ranks, std::size_t chunk_bytes) {
  return reserved_bytes(ranks, chunk_bytes) +
         static_cast<std::size_t>(ranks) * kChunks * large_factor(ranks) * chunk_bytes +
         lane_bytes(ranks);
}

Result<ShmLayout> ShmLayout::create(int ranks, std::size_t chunk_bytes) {
  if (ranks > kMaxRanks) {
    return Status(Code::resource_exhausted, cat(ranks, " ranks are too many for shared memory"));
  }
  auto segment = Segment::create(total_bytes(ranks, chunk_bytes));
  HVD_RETURN_IF_ERROR(segment.status());
  HVD_RETURN_IF_ERROR((*segment)->reserve(0, reserved_bytes(ranks, chunk_bytes)));
  return ShmLayout(std::move(*segment), ranks, chunk_bytes);
}

Result<ShmLayout> ShmLayout::adopt(UniqueFd fd, int ranks, std::size_t chunk_bytes) {
  auto segment = Segment::adopt(std::move(fd), total_bytes(ranks, chunk_bytes));
  HVD_RETURN_IF_ERROR(segment.status());
  return ShmLayout(std::move(*segment), ranks, chunk_bytes);
}

std::optional<std::size_t> ShmLayout::place_of(int process_set) const {
  // The first rank takes the place, and no rank gives it up: so all find the same.
  const auto number = static_cast<std::uint32_t>(process_set) + 1;
  for (std::size_t place = 0; place < kSets; ++place) {
    std::uint32_t taken = 0;
    if (head().sets[place].compare_exchange_strong(taken, number) || taken == number) return place;
  }
  return std::nullopt;
}

RankProgress& ShmLayout::progress(std::size_t place, int rank) const {
  return lines()[place * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank)];
}

std::byte* ShmLayout::chunk(int rank, std::size_t index, ChunkSize size) const {
  const std::size_t begin =
      size == ChunkSize::normal ? head_bytes(ranks_) : reserved_bytes(ranks_, window_bytes_);
  const std::size_t before = static_cast<std::size_t>(rank) * kChunks + index;
  return segment_->data() + begin + before * chunk_bytes(size);
}

Status ShmLayout::reserve_large_chunks(int rank) const {
  std::byte* const first = chunk(rank, 0, ChunkSize::large);
  const std::size_t bytes = kChunks * chunk_bytes(ChunkSize::large);
  HVD_RETURN_IF_ERROR(segment_->reserve(static_cast<std::size_t>(first - segment_->data()), bytes));
  std::memset(first, 0, bytes);
  return {};
}

LaneHead& ShmLayout::lane_head(int lane, int position) const {
  return lane_heads()[static_cast<std::size_t>(lane) * static_cast<std::size_t>(ranks_) +
                      static_cast<std::size_t>(position)];
}

std::size_t ShmLayout::lane_bytes(int ranks) {
  constexpr std::size_t kOfRank = std::size_t{4} << 20;
  return ranks > kMostLaneRanks ? 0 : static_cast<std::size_t>(ranks) * kOfRank;
}

Status ShmLayout::reserve_lane_payloads(std::size_t offset, std::size_t bytes) const {
  return segment_->reserve(lanes_begin() + offset, bytes);
}

}  // namespace hvd::runtime
