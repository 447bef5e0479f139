// The sizes of ResNet-50's 161 parameters, in the order of its layers: 25.6 million elements.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd::bench {

inline std::vector<std::size_t> resnet50_sizes() {
  std::vector<std::size_t> sizes;
  const auto convolution = [&](std::size_t in, std::size_t out, std::size_t kernel) {
    sizes.push_back(in * out * kernel * kernel);
    sizes.push_back(out);  // of the normalisation behind it: scale ...
    sizes.push_back(out);  // ... and shift
  };
  convolution(3, 64, 7);
  std::size_t in = 64;
  std::size_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    const std::size_t out = 4 * width;
    for (int block = 0; block < blocks; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, out, 1);
      if (block == 0) convolution(in, out, 1);
      in = out;
    }
    width *= 2;
  }
  sizes.push_back(in * 1000);
  sizes.push_back(1000);
  return sizes;
}

}  // namespace hvd::bench
