// SPDX-License-Identifier: Apache-2.0
// All workers average a vector of numbers. Each of them prints its rank and the result.
#include <exception>
#include <iostream>
#include <vector>

#include <hvd/hvd.h>

int main() {
  try {
    hvd::init();
    std::vector<float> gradients(1000, static_cast<float>(hvd::rank() + 1));
    hvd::allreduce(gradients, {.name = "gradients", .op = hvd::Average});
    std::cout << "rank " << hvd::rank() << " of " << hvd::size() << ": the average is "
              << gradients[0] << std::endl;
    hvd::shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "average: " << error.what() << std::endl;
    return 1;
  }
}
