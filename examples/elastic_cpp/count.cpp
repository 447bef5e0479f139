// SPDX-License-Identifier: Apache-2.0
// Does a number of steps (1,000, or the first argument) in a job whose workers may come and go.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

#include <hvd/hvd.h>

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
  hvd::init();
  std::vector<float> weights(1000);
  int step = 0;
  hvd::elastic::State state;
  state.add("weights", weights);
  state.add("step", step);

  hvd::elastic::run(state, [&] {
    std::cout << "rank " << hvd::rank() << " of " << hvd::size() << ": from step " << step
              << std::endl;
    while (step < steps) {
      std::vector<float> gradients(weights.size(), 1.0F);  // the work of a real step
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      hvd::allreduce(gradients, {.name = "gradients", .op = hvd::Average});
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += gradients[i];
      ++step;
      state.commit();  // from here on this step is not lost
    }
  });

  if (hvd::rank() == 0) std::cout << "step " << step << ", weight " << weights[0] << std::endl;
  hvd::shutdown();
}
