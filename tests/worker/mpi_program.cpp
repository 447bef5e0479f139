// A program that is compiled for one MPI and uses it besides hvd, for mpi_test.cpp: `mpi_program
// SCENARIO`. It says what it found; anything unexpected ends it with 1.
#include <cstdio>
#include <exception>
#include <string_view>
#include <thread>
#include <vector>
#define OMPI_SKIP_MPICXX 1  // only its C functions
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <hvd/hvd.h>

namespace {

float sum_of_ones(std::size_t elements, int calls) {
  std::vector<float> values(elements);
  for (int i = 0; i < calls; ++i) {
    std::fill(values.begin(), values.end(), 1.0F);
    hvd::allreduce(values, {.name = "ones", .op = hvd::Sum});
  }
  return values.back();
}

void begin_mpi(int threads) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, threads, &provided);
}

// The program's own calls, from a thread of its own, while hvd reduces.
int both() {
  begin_mpi(MPI_THREAD_MULTIPLE);
  hvd::init();
  int sum = 0;
  std::thread own([&sum] {
    for (int i = 0; i < 20; ++i) {
      const int one = 1;
      MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
  });
  const auto ones = static_cast<double>(sum_of_ones(1000, 20));
  own.join();
  std::printf("hvd %g, MPI %d, enabled %d, threads %d\n", ones, sum, hvd::mpi_enabled(),
              hvd::mpi_threads_supported());
  hvd::shutdown();
  MPI_Finalize();
  return 0;
}

// The program's own MPI is for one thread.
int one_thread() {
  begin_mpi(MPI_THREAD_FUNNELED);
  hvd::init();
  return 1;
}

// The program ends MPI while hvd still has a world.
int ended_before() {
  begin_mpi(MPI_THREAD_MULTIPLE);
  hvd::init();
  sum_of_ones(1000, 1);
  MPI_Finalize();
  hvd::shutdown();
  std::printf("ended\n");
  return 0;
}

int run(std::string_view scenario) {
  if (scenario == "both") return both();
  if (scenario == "one-thread") return one_thread();
  if (scenario == "ended-before") return ended_before();
  std::fprintf(stderr, "no such scenario\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
