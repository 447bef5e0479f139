// The one symbol of libhvd_openmpi.so and libhvd_mpich.so: how MPI begins and ends.
#define OMPI_SKIP_MPICXX 1  // only its C functions
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "base/text.h"
#include "base/versions.h"
#include "runtime/mpi/communicator.h"
#include "runtime/ops/mpi.h"

namespace hvd::runtime::mpi {
namespace {

bool begun_here = false;

std::string library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  // "Open MPI v4.1.4, package: ..." and "MPICH Version:\t4.0.2\nMPICH Release date: ...".
  std::string line(text, static_cast<std::size_t>(length));
  line.resize(std::min({line.size(), line.find(','), line.find('\n')}));
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

bool is_there() {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  return begun != 0 && ended == 0;
}

Result<Self> begin(bool wants_threads, ReductionLookup reductions) {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) {
    return Status(Code::failed_precondition,
                  "the program has ended MPI (MPI_Finalize), which cannot begin again");
  }
  const int wanted = wants_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  int provided = MPI_THREAD_SINGLE;
  const bool by_program = is_there();
  if (by_program) {
    MPI_Query_thread(&provided);
  } else {
    HVD_RETURN_IF_ERROR(status_of(MPI_Init_thread(nullptr, nullptr, wanted, &provided), "begin"));
    begun_here = true;
  }
  // Nobody else calls an MPI that was begun here, one call at a time.
  const int needed = by_program ? wanted : MPI_THREAD_SERIALIZED;
  if (provided < needed) {
    return Status(Code::failed_precondition,
                  cat(library(), by_program ? ", which the program has begun," : "",
                      " is not there for calls from several threads: MPI_Init_thread() with "
                      "MPI_THREAD_MULTIPLE is needed, or HVD_MPI_THREADS_DISABLE=1 if the program "
                      "does not call MPI while operations of hvd run"));
  }
  HVD_RETURN_IF_ERROR(make_reductions(reductions));
  Self self;
  self.has_threads = provided == MPI_THREAD_MULTIPLE;
  MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &self.size);
  return self;
}

void end() {
  if (begun_here && is_there()) MPI_Finalize();
}

}  // namespace
}  // namespace hvd::runtime::mpi

extern "C" __attribute__((visibility("default"))) const hvd::runtime::mpi::Module*
hvd_mpi_module() {
  using namespace hvd::runtime::mpi;  // NOLINT(google-build-using-namespace)
  static const Module only{
      {kModuleInterface, &hvd::build_id}, &library, &begin, &end, &is_there, &make_communicator};
  return &only;
}
