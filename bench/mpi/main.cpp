// [HVD_CPU_OPERATIONS=mpi] mpirun -np RANKS hvd_openmpi_bench [ROUNDS [ROW]], and hvd_mpich_bench
// under MPICH's mpiexec: allreduce of float32 through the whole of hvd, side by side with bare
// calls of MPI for the same bytes, in one buffer and one call for each tensor. The last row is what
// a negotiation over MPI would cost at least: 64 bytes from each rank gathered and 64 bytes
// broadcast. The sides take turns in the same processes; medians of what rank 0 sees.
//
// HVD_CACHE_CAPACITY=0 shows negotiations in full.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>
#define OMPI_SKIP_MPICXX 1  // only its C functions
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <hvd/hvd.h>

#include "base/text.h"
#include "bench/collectives/resnet50.h"
#include "bench/times.h"

namespace hvd::bench {
namespace {

template <typename Work>
double milliseconds_together(int calls, const Work& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  return milliseconds([&] {
           for (int i = 0; i < calls; ++i) work();
         }) /
         calls;
}

void reduce_in_place(float* data, std::size_t elements) {
  MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(elements), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

struct Row {
  std::string what;
  std::vector<std::size_t> sizes;
  int turns;
  int calls;  // in a row, in each turn; times are of one
};

void compare(const Row& row) {
  const auto& [what, sizes, turns, calls] = row;
  std::vector<std::vector<float>> tensors;
  std::size_t elements = 0;
  for (const auto size : sizes) {
    tensors.emplace_back(size);
    elements += size;
  }
  std::vector<float> flat(elements);
  std::vector<double> ours;
  std::vector<double> each;
  std::vector<double> one;
  for (int turn = -3; turn < turns; ++turn) {  // the first three fill caches of all kinds
    const double a = milliseconds_together(calls, [&] {
      std::vector<Handle> handles;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        handles.push_back(allreduce_async(tensors[i], {.name = cat(what, i), .op = Sum}));
      }
      for (auto& handle : handles) handle.wait();
    });
    const double b = milliseconds_together(calls, [&] {
      for (auto& tensor : tensors) reduce_in_place(tensor.data(), tensor.size());
    });
    const double c = milliseconds_together(calls, [&] { reduce_in_place(flat.data(), elements); });
    if (turn < 0) continue;
    ours.push_back(a);
    each.push_back(b);
    one.push_back(c);
  }
  if (rank() != 0) return;
  std::printf("%-28s %9.3f %9.3f %9.3f %8.2f %8.2f\n", what.c_str(), median(ours), median(each),
              median(one), median(ours) / median(each), median(ours) / median(one));
  std::fflush(stdout);
}

void gather_and_broadcast(int turns, int calls) {
  constexpr int kBytes = 64;
  std::vector<char> own(kBytes);
  std::vector<char> all(static_cast<std::size_t>(kBytes * size()));
  std::vector<double> times;
  for (int turn = -3; turn < turns; ++turn) {
    const double time = milliseconds_together(calls, [&] {
      MPI_Gather(own.data(), kBytes, MPI_BYTE, all.data(), kBytes, MPI_BYTE, 0, MPI_COMM_WORLD);
      MPI_Bcast(own.data(), kBytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    });
    if (turn >= 0) times.push_back(time);
  }
  if (rank() == 0) std::printf("%-28s %9s %9.3f\n", "MPI_Gather and MPI_Bcast", "", median(times));
}

void run(int rounds, std::string_view only) {
  init();
  if (rank() == 0) {
    std::printf("%d processes, hvd on %s; medians in ms\n%-28s %9s %9s %9s %8s %8s\n", size(),
                mpi_enabled() ? "MPI" : "its own connections", "", "hvd", "MPI each", "MPI flat",
                "hvd/each", "hvd/flat");
  }
  for (int round = 0; round < rounds; ++round) {
    for (const Row& row :
         {Row{"161 tensors, 102 MB", resnet50_sizes(), 7, 1},
          Row{"one tensor of 16 MB", {4 << 20}, 11, 1}, Row{"one tensor of 1 MB", {1 << 18}, 31, 1},
          Row{"one tensor of 4 KB", {1 << 10}, 31, 20}}) {
      if (row.what.find(only) != std::string::npos) compare(row);
    }
    gather_and_broadcast(31, 20);
  }
  shutdown();
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  try {
    hvd::bench::run(argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  MPI_Finalize();
  return 0;
}
