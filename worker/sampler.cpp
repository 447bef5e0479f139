#include <algorithm>
#include <bit>
#include <utility>

#include <hvd/error.h>
#include <hvd/hvd.h>
#include <hvd/sampler.h>

#include "base/text.h"
#include "base/wire.h"

namespace hvd {
namespace {

constexpr std::uint32_t kSavedVersion = 1;
constexpr int kRounds = 6;

// The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every bit in changes half of those
// out.
constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

// A permutation of the numbers of 2 * half_bits bits.
std::uint64_t feistel(std::uint64_t value, int half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const auto round_key = mix(key + static_cast<std::uint64_t>(round));
    left = std::exchange(right, left ^ (mix(right ^ round_key) & mask));
  }
  return left << half_bits | right;
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (options.size < 0) {
    throw InvalidArgumentError(cat("a data set of ", options.size, " samples cannot be"));
  }
}

std::int64_t Sampler::sample_at(std::int64_t position) const {
  if (!options_.shuffle) return position;
  const auto size = static_cast<std::uint64_t>(options_.size);
  const int half_bits = std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
  const auto key = mix(options_.seed) ^ mix(~static_cast<std::uint64_t>(epoch_));
  auto value = static_cast<std::uint64_t>(position);
  // Fewer than four steps on the average, since the range is at least a quarter of the domain.
  do {
    value = feistel(value, half_bits, key);
  } while (value >= size);
  return static_cast<std::int64_t>(value);
}

std::vector<std::int64_t> Sampler::next(std::int64_t batch) {
  return next(batch, hvd::rank(), hvd::size());
}

std::vector<std::int64_t> Sampler::next(std::int64_t batch, int rank, int size) {
  if (batch < 1) throw InvalidArgumentError(cat("a batch of ", batch, " samples cannot be"));
  if (rank < 0 || rank >= size) {
    throw InvalidArgumentError(cat("there is no rank ", rank, " in a world of ", size));
  }
  const std::int64_t fair = (remaining() + size - 1) / size;
  const std::int64_t count = std::min(batch, fair);
  std::vector<std::int64_t> samples;
  samples.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    // Past the end, from the beginning again: padding.
    samples.push_back(sample_at((processed_ + rank * count + i) % options_.size));
  }
  processed_ = std::min(options_.size, processed_ + count * size);
  return samples;
}

void Sampler::set_epoch(std::int64_t epoch) {
  if (epoch < 0) throw InvalidArgumentError(cat("Sampler::set_epoch(): negative epoch ", epoch));
  if (epoch == epoch_) return;
  epoch_ = epoch;
  processed_ = 0;
}

std::string Sampler::save() const {
  return WireWriter()
      .u32(kSavedVersion)
      .i64(options_.size)
      .u64(options_.seed)
      .u8(options_.shuffle ? 1 : 0)
      .i64(epoch_)
      .i64(processed_)
      .take();
}

void Sampler::load(std::string_view saved) {
  WireReader in(saved);
  const auto version = in.u32();
  SamplerOptions options;
  options.size = in.i64();
  options.seed = in.u64();
  options.shuffle = in.u8() != 0;
  const auto epoch = in.i64();
  const auto processed = in.i64();

  if (!in.finish("a sampler").ok() || version != kSavedVersion || epoch < 0 || processed < 0 ||
      processed > options.size) {
    throw InvalidArgumentError("the saved state is not that of a sampler of this version");
  }

  if (options.size != options_.size || options.seed != options_.seed ||
      options.shuffle != options_.shuffle) {
    throw InvalidArgumentError(
        cat("the saved state belongs to a sampler of ", options.size, " samples with seed ",
            options.seed, options.shuffle ? "" : " (in order)", ", this one has ", options_.size,
            " samples and seed ", options_.seed, options_.shuffle ? "" : " (in order)"));
  }

  epoch_ = epoch;
  processed_ = processed;
}

}  // namespace hvd
