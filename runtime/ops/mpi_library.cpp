#include "runtime/ops/mpi_library.h"

#include <atomic>
#include <unistd.h>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// The process that has opened MPI: a forked child of it must not end MPI.
std::atomic<pid_t> opener = 0;
std::atomic<bool> has_threads = false;
std::atomic<bool> some_world_has_failed = false;

}  // namespace

Status MpiLibrary::open() {
  const auto self = module_.begin(wants_threads_, &reduce_function);
  HVD_RETURN_IF_ERROR(self.status());
  opener = ::getpid();
  has_threads = self->has_threads;
  if (self->rank == rank_ && self->size == size_) return {};
  return {Code::failed_precondition,
          cat(module_.library(), " takes this process for rank ", self->rank, " of ", self->size,
              ", and the launcher for rank ", rank_, " of ", size_,
              ": is it the MPI of this launcher? HVD_MPI_MODULE names the module of another")};
}

Status MpiLibrary::usable() const {
  if (module_.is_there()) return {};
  return {Code::failed_precondition, "the program has ended MPI (MPI_Finalize)"};
}

void MpiLibrary::world_failed() { some_world_has_failed = true; }

bool mpi_has_threads() { return has_threads; }

void end_mpi() {
  const mpi::Module* const module = mpi::loaded_module();
  if (module != nullptr && opener == ::getpid() && !some_world_has_failed) module->end();
}

}  // namespace hvd::runtime
