// The work of examples/allreduce_once.cpp, for Open MPI: start, one allreduce, a check, the end.
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const float mine = (float)(rank + 1);
  float sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  const float expected = (float)size * (float)(size + 1) / 2;
  if (sum != expected) {
    fprintf(stderr, "rank %d: the sum is %g, not %g\n", rank, sum, expected);
    return 1;
  }
  return 0;
}
