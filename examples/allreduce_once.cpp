// SPDX-License-Identifier: Apache-2.0
// The least that a job can do: join the world, reduce once, check, leave. bench/startup times it.
#include <cstdio>
#include <exception>
#include <vector>

#include <hvd/hvd.h>

int main() {
  try {
    hvd::init();
    std::vector<float> values{static_cast<float>(hvd::rank() + 1)};
    hvd::allreduce(values, {.name = "once", .op = hvd::Sum});
    const int sum = hvd::size() * (hvd::size() + 1) / 2;
    const auto expected = static_cast<float>(sum);
    const int rank = hvd::rank();
    hvd::shutdown();
    if (values[0] == expected) return 0;
    std::fprintf(stderr, "rank %d: the sum is %g, not %g\n", rank, static_cast<double>(values[0]),
                 static_cast<double>(expected));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allreduce_once: %s\n", error.what());
  }
  return 1;
}
