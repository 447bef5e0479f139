// Which blocks of a state travel. A newcomer's own objects may hold nearly all bytes of the state
// already: frozen weights that its program has loaded, or what the same seed has given. So the
// receivers compare digests of their own blocks with those of the first holder. Blocks are cut
// within each part, so that a part of another size shifts no others; that part itself is missing as
// a whole.
//
// Blocks with equal digests count as equal, as in rsync. Two blocks that differ have the same
// digest of 64 bits once in 2^64 times. Then the receiver keeps its own block, and nothing notices
// that, unless the program compares the states (StateOptions::compare_every). Digests find what
// differs by chance, not by malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "worker/elastic/store.h"

namespace hvd::worker {

inline constexpr std::uint64_t kStateBlock = std::uint64_t{256} << 10;

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
};

using Block = std::span<const std::byte>;

// The bytes of a state whose parts have these sizes. They come from another rank, so a sum beyond
// 64 bits is an error.
Result<std::uint64_t> total_of(const std::vector<std::uint64_t>& sizes);

// The blocks of a state whose parts have these sizes, in their order, none of them empty.
std::vector<Range> cut_into_blocks(const std::vector<std::uint64_t>& sizes);
// The same blocks where they lie in `copy`. Those of a part that has another size there are empty;
// all are if the copy holds nothing whole.
std::vector<Block> blocks_in(const Copy& copy, const std::vector<std::uint64_t>& sizes);
// The beginnings of some of these blocks, spread evenly over the bytes of the state.
std::vector<Block> sample_of(const std::vector<Block>& blocks, const std::vector<Range>& cut);

std::vector<std::uint64_t> digests_of(const std::vector<Block>& blocks);

// Blocks by their index, as a set that travels.
class BlockSet {
 public:
  explicit BlockSet(std::size_t blocks) : bits_((blocks + 7) / 8, '\0'), blocks_(blocks) {}
  void add(std::size_t block) { bits_[block / 8] |= static_cast<char>(1 << block % 8); }
  // `bits`: those of a set of as many blocks.
  void add_all(std::string_view bits);
  bool has(std::size_t block) const { return (bits_[block / 8] >> block % 8 & 1) != 0; }
  std::size_t count() const;
  std::string_view bits() const { return bits_; }
  // Where they lie in a state that is cut like this; neighbours as one range.
  std::vector<Range> ranges(const std::vector<Range>& cut) const;

 private:
  std::string bits_;
  std::size_t blocks_;
};

// These ranges of a state, one after the other; and back to where they lie.
void pack_ranges(std::span<const std::byte> state, const std::vector<Range>& ranges,
                 std::span<std::byte> packed);
void unpack_ranges(std::span<const std::byte> packed, const std::vector<Range>& ranges,
                   std::span<std::byte> state);

}  // namespace hvd::worker
