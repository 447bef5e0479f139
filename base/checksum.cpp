#include "base/checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace hvd {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87U;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FU;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9U;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63U;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5U;

static_assert(std::endian::native == std::endian::little, "the words are read as they lie");

template <typename Word>
std::uint64_t word_at(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

}  // namespace

Checksum::Checksum() : lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1} {}

void Checksum::take_block(const std::byte* at) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i] = mixed(lanes_[i], word_at<std::uint64_t>(at + 8 * i));
  }
}

void Checksum::add(std::span<const std::byte> bytes) {
  const std::size_t kept = size_ % kBlock;
  size_ += bytes.size();
  if (kept > 0) {
    const auto more = bytes.first(std::min(bytes.size(), kBlock - kept));
    std::copy(more.begin(), more.end(), rest_.begin() + kept);
    if (kept + more.size() < kBlock) return;
    take_block(rest_.data());
    bytes = bytes.subspan(more.size());
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) take_block(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

std::uint64_t Checksum::value() const {
  std::uint64_t hash = kPrime5;
  if (size_ >= kBlock) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const auto lane : lanes_) hash = (hash ^ mixed(0, lane)) * kPrime1 + kPrime4;
  }
  hash += size_;
  const std::byte* at = rest_.data();
  std::size_t left = size_ % kBlock;
  for (; left >= 8; left -= 8, at += 8) {
    hash = std::rotl(hash ^ mixed(0, word_at<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ (word_at<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    left -= 4;
    at += 4;
  }
  for (; left > 0; --left, ++at) {
    hash = std::rotl(hash ^ (std::to_integer<std::uint64_t>(*at) * kPrime5), 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.value();
}

}  // namespace hvd
