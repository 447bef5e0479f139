#include "runtime/ops/shm_in_place_allreduce.h"

#include <algorithm>

#include "base/machine/bulk_copy.h"
#include "base/text.h"
#include "runtime/core/reduce_in_order.h"
#include "runtime/ops/shm_operation.h"
#include "runtime/shm/shared_heap.h"

namespace hvd::runtime {
namespace {

// So many chunks. Larger slices fall out of the caches before other ranks read them, smaller ones
// cost steps.
constexpr std::size_t kSliceChunks = 4;

}  // namespace

ShmInPlaceAllreduce::ShmInPlaceAllreduce(ShmCollective& collective,
                                         const BatchArithmetic& arithmetic)
    : collective_(collective),
      arithmetic_(arithmetic),
      element_(size_of(arithmetic.wire)),
      reduce_(reduce_function(arithmetic.wire, arithmetic.op)) {}

bool ShmInPlaceAllreduce::offer(const Entries& entries, std::span<const Outcome> outcomes) {
  if (!arithmetic_.only_copies()) return false;
  if (entries.size() * sizeof(std::uint64_t) > collective_.capacity()) return false;
  const auto& heap = SharedHeap::of_process();
  auto* const offsets = reinterpret_cast<std::uint64_t*>(collective_.chunk(collective_.rank()));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    offsets[i] = 0;
    if (entry.request.elements() == 0) continue;
    if (entry.input == nullptr || entry.input != outcomes[i].output) return false;
    const auto offset = heap.offset_of(entry.input, entry.request.bytes());
    if (!offset || *offset % element_ != 0) return false;
    offsets[i] = *offset;
  }
  return collective_.map_heaps();
}

Status ShmInPlaceAllreduce::find_tensors(const Entries& entries,
                                         std::span<const Outcome> outcomes) {
  const auto ranks = static_cast<std::size_t>(collective_.size());
  places_.reserve(entries.size() * ranks);  // the list points into it
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto count = static_cast<std::size_t>(entries[i].request.elements());
    if (count == 0) continue;
    tensors_.add(places_.data() + places_.size(), count);
    for (int rank = 0; rank < collective_.size(); ++rank) {
      const Segment& heap = collective_.heap(rank);
      const auto* const offsets = reinterpret_cast<const std::uint64_t*>(collective_.chunk(rank));
      const std::uint64_t offset = offsets[i];
      if (offset > heap.size() || count * element_ > heap.size() - offset) {
        return {Code::internal, cat("a rank has no tensor at ", offset, " of its heap")};
      }
      const bool is_own = rank == collective_.rank();
      places_.push_back(is_own ? static_cast<std::byte*>(outcomes[i].output)
                               : heap.data() + offset);
    }
  }
  return {};
}

Status ShmInPlaceAllreduce::run(const Entries& entries, std::span<const Outcome> outcomes) {
  HVD_RETURN_IF_ERROR(find_tensors(entries, outcomes));
  const std::size_t slice = whole_grains(kSliceChunks * collective_.capacity() / element_);
  collective_.set_chunks_of_step(kSliceChunks);
  for (std::size_t begin = 0; begin < tensors_.size(); begin += slice) {
    const std::size_t count = std::min(slice, tensors_.size() - begin);
    const auto own = share_of(collective_, collective_.rank(), count);
    reduce(begin + own.begin, begin + own.end);
    HVD_RETURN_IF_ERROR(collective_.sync());
    for (int rank = 0; rank < collective_.size(); ++rank) {
      if (rank == collective_.rank()) continue;
      const auto share = share_of(collective_, rank, count);
      copy_from(rank, begin + share.begin, begin + share.end);
    }
  }
  HVD_RETURN_IF_ERROR(collective_.sync());
  collective_.next_chunk();
  return collective_.check_none_failed();
}

void ShmInPlaceAllreduce::reduce(std::size_t begin, std::size_t end) const {
  const std::size_t block = kReducedAtOnce / element_;
  tensors_.for_range(
      begin, end,
      [&](std::byte* const* places, std::size_t before, std::size_t /*from*/, std::size_t count) {
        for (std::size_t done = 0; done < count; done += block) {
          const std::size_t at = (before + done) * element_;
          const std::size_t n = std::min(block, count - done);
          std::byte* const out = places[collective_.rank()] + at;
          reduce_in_order(
              reduce_, collective_.size(), [&](int rank) { return places[rank] + at; }, out, n);
          if (arithmetic_.changes_sums()) arithmetic_.finish(out, n);
        }
      });
}

void ShmInPlaceAllreduce::copy_from(int rank, std::size_t begin, std::size_t end) const {
  tensors_.for_range(
      begin, end,
      [&](std::byte* const* places, std::size_t before, std::size_t /*from*/, std::size_t count) {
        const std::size_t at = before * element_;
        bulk_copy(places[collective_.rank()] + at, places[rank] + at, count * element_);
      });
}

}  // namespace hvd::runtime
