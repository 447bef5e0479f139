// A checksum that finds damage, not malice: XXH64, by Yann Collet, with seed 0. As fast as memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hvd {

// A checksum of bytes that come piece by piece; how they are cut makes no difference. A value.
class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;  // of all that was added so far

 private:
  static constexpr std::size_t kBlock = 32;
  void take_block(const std::byte* at);

  std::array<std::uint64_t, 4> lanes_;
  std::uint64_t size_ = 0;
  std::array<std::byte, kBlock> rest_{};  // what makes no whole block yet: size_ % kBlock bytes
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);

}  // namespace hvd
