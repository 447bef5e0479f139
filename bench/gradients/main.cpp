// hvdrun -np RANKS hvd_gradients_bench [ROUNDS]: a step of GradientReducer beside the same
// gradients as one flat allreduce() and as an allreduce_async() for each, in turns in the same
// processes; medians of what rank 0 sees.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <hvd/hvd.h>

#include "base/text.h"
#include "bench/collectives/resnet50.h"
#include "bench/times.h"

namespace hvd::bench {
namespace {

struct Row {
  const char* what;
  std::vector<std::size_t> sizes;
  int turns;
};

// All ranks begin together.
template <typename Work>
double milliseconds_together(const Work& work) {
  barrier();
  return milliseconds(work);
}

void compare(const Row& row) {
  std::vector<std::vector<float>> gradients;
  GradientReducer reducer({.name = row.what, .op = Sum});
  std::size_t elements = 0;
  for (const auto size : row.sizes) {
    gradients.emplace_back(size, 1.0F);
    elements += size;
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) reducer.add(cat(i), gradients[i]);
  Tensor flat = empty({static_cast<std::int64_t>(elements)}, DataType::float32);

  std::vector<double> step;
  std::vector<double> packed;
  std::vector<double> single;
  for (int turn = -5; turn < row.turns; ++turn) {  // the first five fill caches of all kinds
    const double a = milliseconds_together([&] {
      for (std::size_t i = 0; i < gradients.size(); ++i) reducer.ready(i);
      reducer.synchronize();
    });
    const double b = milliseconds_together(
        [&] { allreduce(flat, {.name = cat(row.what, ".flat"), .op = Sum}); });
    const double c = milliseconds_together([&] {
      std::vector<Handle> handles;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        handles.push_back(
            allreduce_async(gradients[i], {.name = cat(row.what, ".of.", i), .op = Sum}));
      }
      for (auto& handle : handles) handle.wait();
    });
    if (turn < 0) continue;
    step.push_back(a);
    packed.push_back(b);
    single.push_back(c);
  }
  if (rank() != 0) return;
  std::printf("%-28s %10.3f %10.3f %10.3f\n", row.what, median(step), median(packed),
              median(single));
  std::fflush(stdout);
}

int run(int rounds) {
  init();
  if (rank() == 0) {
    std::printf("%d processes, medians in ms\n%-28s %10s %10s %10s\n", size(), "", "reducer",
                "flat", "each");
  }
  for (int round = 0; round < rounds; ++round) {
    compare({"1000 tensors of 1 KB", std::vector<std::size_t>(1000, 256), 101});
    compare({"161 tensors, 102 MB", resnet50_sizes(), 15});
  }
  shutdown();
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) { return hvd::bench::run(argc > 1 ? std::atoi(argv[1]) : 1); }
