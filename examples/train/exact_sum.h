// SPDX-License-Identifier: Apache-2.0
// How gradients are rounded so that their sum over all workers is exact: to multiples of 2^-k that
// need no more than the 24 bits of a float. A sum of floats depends on its order, and the order on
// which tensors the runtime happens to fuse; these sums do not, so equal runs give equal curves.
// The grid is at least a thousand times finer than a gradient that matters here.
#pragma once

#include <bit>

namespace train {

struct ExactSum {
  static constexpr float kLimit = 0.25F;  // of one worker's part of a gradient
  float grid;

  static ExactSum of(int workers) {
    return {kLimit * static_cast<float>(std::bit_ceil(static_cast<unsigned>(workers))) * 0x1p-24F};
  }
};

}  // namespace train
