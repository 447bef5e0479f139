// hvdrun -np RANKS hvd_shards_bench [ROUNDS [SHARDS [ROW]]]: what the same bits at any number of
// workers cost: ShardReducer::synchronize() beside allreduce() of the same gradients, in turns in
// the same processes; medians of what rank 0 sees. The last columns are of ready(), which a rank
// calls for each of its shards, and which takes the place of adding up gradients in memory. With
// ROW, only the rows whose names contain it.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/hvd.h>
#include <hvd/shards.h>

#include "base/text.h"
#include "bench/collectives/resnet50.h"
#include "bench/times.h"

namespace hvd::bench {
namespace {

struct Row {
  const char* what;
  std::vector<std::size_t> sizes;
  int turns;
  int calls;  // in a row, in each turn; times are of one
};

// All ranks begin together.
template <typename Work>
double milliseconds_together(const Row& row, const Work& work) {
  barrier();
  return milliseconds([&] {
           for (int i = 0; i < row.calls; ++i) work();
         }) /
         row.calls;
}

void compare(const Row& row, int shards) {
  std::vector<std::vector<float>> gradients;
  ShardReducer reducer({.shards = shards, .name = row.what, .op = Sum});
  for (std::size_t i = 0; i < row.sizes.size(); ++i) {
    gradients.emplace_back(row.sizes[i], 1.0F);
    reducer.add(cat(i), gradients.back());
  }

  std::vector<double> plain;
  std::vector<double> synchronized;
  std::vector<double> ready;
  for (int turn = -3; turn < row.turns; ++turn) {  // the first three fill caches of all kinds
    const double a = milliseconds_together(row, [&] {
      std::vector<Handle> handles;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        handles.push_back(
            allreduce_async(gradients[i], {.name = cat(row.what, ".", i), .op = Sum}));
      }
      for (auto& handle : handles) handle.wait();
    });
    double of_ready = 0;
    double of_all = milliseconds_together(row, [&] {
      of_ready += milliseconds([&] {
        for (const int shard : reducer.own()) reducer.ready(shard);
      });
      // Ranks that have fewer shards are ready earlier.
      of_ready += milliseconds([] { barrier(); });
      reducer.synchronize();
    });
    if (turn < 0) continue;
    plain.push_back(a);
    ready.push_back(of_ready / row.calls);
    synchronized.push_back(of_all - of_ready / row.calls);
  }
  if (rank() != 0) return;
  std::printf("%-28s %10.3f %12.3f %7.2f %10.3f\n", row.what, median(plain), median(synchronized),
              median(synchronized) / median(plain), median(ready));
  std::fflush(stdout);
}

int run(int rounds, int shards, std::string_view only) {
  init();
  std::size_t own = 0;
  for (int other = 0; other < size(); ++other) {
    own = std::max(own, static_cast<std::size_t>(shards_of(shards, other, size()).size()));
  }
  if (rank() == 0) {
    std::printf(
        "%d processes, %d shards, at most %zu of a rank; medians in ms\n%-28s %10s %12s %7s "
        "%10s\n",
        size(), shards, own, "", "allreduce", "synchronize", "ratio", "ready");
  }
  for (int round = 0; round < rounds; ++round) {
    for (const Row& row :
         {Row{"161 tensors, 102 MB", resnet50_sizes(), 15, 1},
          Row{"one tensor of 16 MB", {4 << 20}, 31, 1}, Row{"one tensor of 1 MB", {1 << 18}, 61, 1},
          Row{"one tensor of 4 KB", {1 << 10}, 61, 20}}) {
      if (std::string_view(row.what).find(only) != std::string_view::npos) compare(row, shards);
    }
  }
  shutdown();
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
  const int shards = argc > 2 ? std::atoi(argv[2]) : 16;
  return hvd::bench::run(rounds, shards, argc > 3 ? argv[3] : "");
}
