// Gloo's own allreduce of one flat buffer, to compare with: on Gloo's stock transport, or on any
// other. For benchmarks.
#pragma once

#include <cstddef>
#include <gloo/context.h>
#include <gloo/transport/device.h>
#include <memory>
#include <string>
#include <vector>

#include "runtime/control/world.h"

namespace hvd::bench {

// Everybody connected to everybody by Gloo's TCP transport, on this rank's address. `exchange` is
// used once.
std::shared_ptr<gloo::Context> stock_gloo(int rank, int size, const std::string& address,
                                          runtime::Exchange& exchange);
std::shared_ptr<gloo::Context> gloo_context(int rank, int size,
                                            std::shared_ptr<gloo::transport::Context> transport,
                                            std::shared_ptr<gloo::transport::Device> device);

class Flat {
 public:
  Flat(std::shared_ptr<gloo::Context> context, std::size_t elements)
      : context_(std::move(context)), data_(elements, 1.0F) {}
  void allreduce();

 private:
  std::shared_ptr<gloo::Context> context_;
  std::vector<float> data_;
};

}  // namespace hvd::bench
