// MPI in one world: its communicators, one for each process set, made with the set's first batch.
// Nothing can interrupt a call of MPI. If the world fails while one is under way, the process ends
// with exit code 70, at the latest kMpiGrace later, unless the call returns by then or the
// launcher has ended it before.
//
// open(), call() and forget() are for one thread at a time; abort() is safe from any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "runtime/ops/mpi.h"
#include "runtime/ops/operation.h"

namespace hvd::runtime {

inline constexpr std::chrono::seconds kMpiGrace{5};

class MpiWorld {
 public:
  explicit MpiWorld(const mpi::Module& module) : module_(module) {}
  // Frees the communicators, unless the world has failed.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  // Begins MPI, if that is still to be done. An error: MPI does not know this process as `rank` of
  // `size`, or is not there for several threads, and `wants_threads`.
  Status open(int rank, int size, bool wants_threads);
  // Runs `work` with the set's communicator, on all members.
  template <typename Work>
  Status call(const Group& group, const Work& work) {
    const Call scope(*this);
    HVD_RETURN_IF_ERROR(scope.begun);
    const auto communicator = communicator_of(group);
    HVD_RETURN_IF_ERROR(communicator.status());
    return work(**communicator);
  }
  void forget(int process_set);
  void abort(const Status& why);

 private:
  // A call of MPI is under way, unless the world had failed before.
  struct Call {
    explicit Call(MpiWorld& world);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    MpiWorld& world;
    Status begun;
  };
  Result<mpi::Communicator*> communicator_of(const Group& group);
  void watch_call();

  const mpi::Module& module_;
  std::map<int, std::unique_ptr<mpi::Communicator>> communicators_;  // by process set
  std::mutex mutex_;
  std::condition_variable call_ended_;
  bool in_call_ = false;  // under mutex_
  Status failure_;        // under mutex_
  std::thread watch_;     // started under mutex_
};

// Whether several threads may call the MPI that a world has opened, at the same time.
bool mpi_has_threads();

// Ends MPI if hvd has begun it, and no world in which it was used has failed. For the orderly end
// of a program.
void end_mpi();

}  // namespace hvd::runtime
