// Sums a tensor of 128 MB over all ranks: twice as much as a container's /dev/shm holds.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include <hvd/hvd.h>

int main() {
  try {
    hvd::init();
    std::vector<float> values(std::size_t{32} << 20, static_cast<float>(hvd::rank() + 1));
    hvd::allreduce(values, {.name = "large", .op = hvd::Sum});
    const int sum = hvd::size() * (hvd::size() + 1) / 2;
    const auto expected = static_cast<float>(sum);
    const bool right = std::all_of(values.begin(), values.end(),
                                   [&](const float value) { return value == expected; });
    std::printf("the sum of 128 MB is %s\n", right ? "right" : "wrong");
    hvd::shutdown();
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "large_sum: %s\n", error.what());
    return 1;
  }
}
