// SPDX-License-Identifier: Apache-2.0
// The description of the model, wherever it computes: its sizes, its first weights, how it learns,
// and a digest of its weights.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "random.h"

namespace train {

inline constexpr std::size_t kBytes = 256;

struct ModelShape {
  std::size_t context;
  std::size_t embedding;
  std::size_t hidden;
  std::size_t inputs() const { return context * embedding; }
};

// Uniform in [-bound, bound), the same on every worker: no library's distribution is involved.
inline void fill_uniform(std::vector<float>& values, std::uint64_t seed, std::uint64_t stream,
                         double bound) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double unit = static_cast<double>(random_at(seed, stream, i) >> 11) * 0x1p-53;
    values[i] = static_cast<float>((2 * unit - 1) * bound);
  }
}

// Biases begin as 0.
inline void first_weights(const ModelShape& shape, std::uint64_t seed,
                          std::vector<float>& embedding, std::vector<float>& hidden,
                          std::vector<float>& output) {
  // Streams far above any step's number, so that weights and samples share no random numbers.
  constexpr std::uint64_t kWeights = std::uint64_t{1} << 63;
  fill_uniform(embedding, seed, kWeights, 1.0);
  fill_uniform(hidden, seed, kWeights + 1, std::sqrt(3.0 / static_cast<double>(shape.inputs())));
  fill_uniform(output, seed, kWeights + 2, std::sqrt(1.0 / static_cast<double>(shape.hidden)));
}

// Of Adam.
inline constexpr float kMeanDecay = 0.9F;
inline constexpr float kSquareDecay = 0.99F;
inline constexpr float kLeast = 1e-8F;

inline float adam_rate(double learning_rate, std::size_t step) {
  const auto steps = static_cast<double>(step);
  return static_cast<float>(learning_rate * std::sqrt(1 - std::pow(kSquareDecay, steps)) /
                            (1 - std::pow(kMeanDecay, steps)));
}

// FNV-1a over their bytes.
class WeightsDigest {
 public:
  void add(const std::vector<float>& weights) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(weights.data());
    for (std::size_t i = 0; i < weights.size() * sizeof(float); ++i) {
      value_ = (value_ ^ bytes[i]) * 0x100000001b3U;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace train
