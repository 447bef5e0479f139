// MPI in one world, as the operations on tensors of the host use it.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/ops/library.h"
#include "runtime/ops/mpi.h"

namespace hvd::runtime {

class MpiLibrary final : public Library {
 public:
  // This process is `rank` of `size`. `wants_threads`: MPI must be there for several threads.
  MpiLibrary(const mpi::Module& module, int rank, int size, bool wants_threads)
      : module_(module), rank_(rank), size_(size), wants_threads_(wants_threads) {}

  std::string_view name() const override { return "mpi"; }
  std::string_view title() const override { return "MPI"; }
  // An error: MPI does not know this process as that rank, or is not there for several threads.
  Status open() override;
  Status usable() const override;
  Result<std::unique_ptr<LibraryCommunicator>> make(const Group& group) override {
    return module_.make(group.ranks, group.id);
  }
  void world_failed() override;

 private:
  const mpi::Module& module_;
  const int rank_;
  const int size_;
  const bool wants_threads_;
};

// Whether several threads may call the MPI that a world has opened, at the same time.
bool mpi_has_threads();

// Ends MPI if hvd has begun it, and no world in which it was used has failed. For the orderly end
// of a program.
void end_mpi();

}  // namespace hvd::runtime
