// [HVD_CPU_OPERATIONS=mpi] mpirun -np RANKS hvd_openmpi_bench [ROUNDS [ROW]], and hvd_mpich_bench
// under MPICH's mpiexec: hvd beside bare calls of MPI (compare.h). The last row is what a
// negotiation over MPI would cost at least: 64 bytes from each rank gathered and 64 bytes
// broadcast.
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

#include "bench/libraries/compare.h"

namespace hvd::bench {
namespace {

struct BareMpi {
  static void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  static void reduce_in_place(float* data, std::size_t elements) {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }
};

void gather_and_broadcast(BareMpi& bare, int turns, int calls) {
  constexpr int kBytes = 64;
  std::vector<char> own(kBytes);
  std::vector<char> all(static_cast<std::size_t>(kBytes * size()));
  std::vector<double> times;
  for (int turn = -3; turn < turns; ++turn) {
    const double time = milliseconds_together(bare, calls, [&] {
      MPI_Gather(own.data(), kBytes, MPI_BYTE, all.data(), kBytes, MPI_BYTE, 0, MPI_COMM_WORLD);
      MPI_Bcast(own.data(), kBytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    });
    if (turn >= 0) times.push_back(time);
  }
  if (rank() == 0) std::printf("%-28s %9s %11.3f\n", "MPI_Gather and MPI_Bcast", "", median(times));
}

void run(int rounds, std::string_view only) {
  init();
  print_head("MPI", mpi_enabled());
  BareMpi bare;
  for (int round = 0; round < rounds; ++round) {
    for (const Row& row : library_rows()) {
      if (row.what.find(only) != std::string::npos) compare(bare, row);
    }
    gather_and_broadcast(bare, 31, 20);
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
