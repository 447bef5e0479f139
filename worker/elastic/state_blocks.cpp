#include "worker/elastic/state_blocks.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/checksum.h"
#include "base/text.h"

namespace hvd::worker {
namespace {

constexpr std::size_t kSampledBlocks = 64;
constexpr std::size_t kSampledBytes = std::size_t{4} << 10;  // of each of them

bool is_whole(const Copy& copy) {
  return std::accumulate(copy.sizes.begin(), copy.sizes.end(), std::uint64_t{0}) ==
         copy.bytes.size();
}

}  // namespace

Result<std::uint64_t> total_of(const std::vector<std::uint64_t>& sizes) {
  std::uint64_t total = 0;
  for (const auto size : sizes) {
    if (__builtin_add_overflow(total, size, &total)) {
      return Status(Code::data_loss, cat("the sizes of the ", sizes.size(),
                                         " parts of a state add up to more than 64 bits can hold"));
    }
  }
  return total;
}

std::vector<Range> cut_into_blocks(const std::vector<std::uint64_t>& sizes) {
  std::vector<Range> blocks;
  std::uint64_t begin = 0;
  for (const auto size : sizes) {
    const std::uint64_t end = begin + size;
    for (; begin < end; begin = blocks.back().end) {
      blocks.push_back({begin, std::min(end, begin + kStateBlock)});
    }
  }
  return blocks;
}

std::vector<Block> blocks_in(const Copy& copy, const std::vector<std::uint64_t>& sizes) {
  const bool has_parts = copy.sizes.size() == sizes.size() && is_whole(copy);
  std::vector<Block> blocks;
  std::uint64_t begin = 0;  // of the part, in the copy
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    const bool has_part = has_parts && copy.sizes[part] == sizes[part];
    for (const auto& block : cut_into_blocks({sizes[part]})) {
      blocks.push_back(has_part ? copy.bytes.bytes().subspan(begin + block.begin, block.size())
                                : Block());
    }
    if (has_parts) begin += copy.sizes[part];
  }
  return blocks;
}

std::vector<Block> sample_of(const std::vector<Block>& blocks, const std::vector<Range>& cut) {
  std::vector<Block> sample;
  if (cut.empty()) return sample;
  const auto begins_after = [](std::uint64_t at, const Range& block) { return at < block.begin; };
  for (std::size_t i = 0; i < kSampledBlocks; ++i) {
    const std::uint64_t at = cut.back().end * i / kSampledBlocks;
    const auto next = std::upper_bound(cut.begin(), cut.end(), at, begins_after);
    const Block& block = blocks[static_cast<std::size_t>(next - cut.begin()) - 1];
    sample.push_back(block.first(std::min(block.size(), kSampledBytes)));
  }
  return sample;
}

std::vector<std::uint64_t> digests_of(const std::vector<Block>& blocks) {
  std::vector<std::uint64_t> digests;
  digests.reserve(blocks.size());
  std::transform(blocks.begin(), blocks.end(), std::back_inserter(digests), checksum_of);
  return digests;
}

void BlockSet::add_all(std::string_view bits) {
  for (std::size_t i = 0; i < bits_.size(); ++i) bits_[i] |= bits[i];
}

std::size_t BlockSet::count() const {
  std::size_t count = 0;
  for (std::size_t block = 0; block < blocks_; ++block) count += has(block) ? 1 : 0;
  return count;
}

std::vector<Range> BlockSet::ranges(const std::vector<Range>& cut) const {
  std::vector<Range> ranges;
  for (std::size_t block = 0; block < blocks_; ++block) {
    if (!has(block)) continue;
    if (!ranges.empty() && ranges.back().end == cut[block].begin) {
      ranges.back().end = cut[block].end;
    } else {
      ranges.push_back(cut[block]);
    }
  }
  return ranges;
}

void pack_ranges(std::span<const std::byte> state, const std::vector<Range>& ranges,
                 std::span<std::byte> packed) {
  auto at = packed.begin();
  for (const auto& range : ranges) {
    const auto bytes = state.subspan(range.begin, range.size());
    at = std::copy(bytes.begin(), bytes.end(), at);
  }
}

void unpack_ranges(std::span<const std::byte> packed, const std::vector<Range>& ranges,
                   std::span<std::byte> state) {
  for (const auto& range : ranges) {
    const auto bytes = packed.first(range.size());
    std::copy(bytes.begin(), bytes.end(), state.subspan(range.begin).begin());
    packed = packed.subspan(range.size());
  }
}

}  // namespace hvd::worker
