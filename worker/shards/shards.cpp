#include <algorithm>
#include <bit>
#include <utility>

#include <hvd/error.h>
#include <hvd/shards.h>

#include "base/text.h"

namespace hvd {
namespace {

// The constants of Philox4x32.
constexpr std::uint64_t kMultiply0 = 0xD2511F53;
constexpr std::uint64_t kMultiply1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kPhiloxRounds = 10;

constexpr std::uint32_t low_half(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high_half(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

// Groups of so many shards stay together: the largest power of two with which no rank has more than
// `most`.
int group_size(int shards, int size, int most) {
  int group = 1;
  for (int next = 2; next <= most; next *= 2) {
    const int groups = (shards + next - 1) / next;
    const int of_one_rank = (groups + size - 1) / size;
    if (of_one_rank * next <= most) group = next;
  }
  return group;
}

}  // namespace

ShardRange shards_of(int shards, int rank, int size) {
  if (shards < 1 || shards > kMaxShards) {
    throw InvalidArgumentError(
        cat("there can be from 1 to ", kMaxShards, " shards, and not ", shards));
  }
  if (rank < 0 || rank >= size) {
    throw InvalidArgumentError(cat("there is no rank ", rank, " in a world of ", size));
  }

  const int group = group_size(shards, size, (shards + size - 1) / size);
  const int groups = (shards + group - 1) / group;
  const int each = groups / size;
  const int more = groups % size;  // ranks that have one more
  const int first = rank * each + std::min(rank, more);
  const int last = first + each + (rank < more ? 1 : 0);
  return {std::min(shards, first * group), std::min(shards, last * group)};
}

ShardRandom::ShardRandom(std::uint64_t seed, int shard, std::uint64_t step)
    : key_{low_half(seed), high_half(seed)},
      counter_{0, static_cast<std::uint32_t>(shard), low_half(step), high_half(step)},
      block_{} {}

ShardRandom::result_type ShardRandom::operator()() {
  if (used_ == 4) next_block();
  return block_[used_++];
}

void ShardRandom::discard(std::uint64_t count) {
  const auto left = static_cast<std::uint64_t>(4 - used_);
  if (count <= left) {
    used_ += static_cast<int>(count);
    return;
  }
  count -= left;
  counter_[0] += static_cast<std::uint32_t>(count / 4);
  used_ = 4;
  if (count % 4 == 0) return;
  next_block();
  used_ = static_cast<int>(count % 4);
}

void ShardRandom::next_block() {
  std::copy(std::begin(counter_), std::end(counter_), block_);
  std::uint32_t key0 = key_[0];
  std::uint32_t key1 = key_[1];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t first = kMultiply0 * block_[0];
    const std::uint64_t second = kMultiply1 * block_[2];
    block_[0] = high_half(second) ^ block_[1] ^ key0;
    block_[1] = low_half(second);
    block_[2] = high_half(first) ^ block_[3] ^ key1;
    block_[3] = low_half(first);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }

  ++counter_[0];
  used_ = 0;
}

}  // namespace hvd
