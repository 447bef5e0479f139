// SPDX-License-Identifier: Apache-2.0
// Random numbers as a pure function of what they are for: every worker can compute any of them, in
// any order, and all get the same.
#pragma once

#include <cstdint>

namespace train {

// The finaliser of SplitMix64: a bijection that spreads each bit over all.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr std::uint64_t random_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return mix(mix(mix(seed) ^ stream) ^ index);
}

}  // namespace train
