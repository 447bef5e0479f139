#include "runtime/ops/mpi_world.h"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/core/threads.h"

namespace hvd::runtime {
namespace {

// EX_SOFTWARE.
constexpr int kStuckExitCode = 70;

// The process that has opened MPI: a forked child of it must not end MPI.
std::atomic<pid_t> opener = 0;
std::atomic<bool> has_threads = false;
std::atomic<bool> some_world_has_failed = false;

}  // namespace

MpiWorld::~MpiWorld() {
  if (watch_.joinable()) watch_.join();
  if (failure_.ok() && module_.is_there()) return;
  // MPI would wait for members that are lost, or is not there any more.
  for (auto& [set, communicator] : communicators_) static_cast<void>(communicator.release());
}

Status MpiWorld::open(int rank, int size, bool wants_threads) {
  const Call scope(*this);
  HVD_RETURN_IF_ERROR(scope.begun);
  const auto self = module_.begin(wants_threads, &reduce_function);
  HVD_RETURN_IF_ERROR(self.status());
  opener = ::getpid();
  has_threads = self->has_threads;
  if (self->rank == rank && self->size == size) return {};
  return {Code::failed_precondition,
          cat(module_.library(), " takes this process for rank ", self->rank, " of ", self->size,
              ", and the launcher for rank ", rank, " of ", size,
              ": is it the MPI of this launcher? HVD_MPI_MODULE names the module of another")};
}

void MpiWorld::forget(int process_set) {
  const Call scope(*this);
  if (scope.begun.ok() && module_.is_there()) communicators_.erase(process_set);
}

void MpiWorld::abort(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = why;
  some_world_has_failed = true;
  if (!in_call_) return;
  // At once, since the launcher may end this process soon.
  HVD_LOG(error, "the world has failed (" << why.message()
                                          << ") during a call of MPI, which nothing can interrupt");
  try {
    watch_ = start_thread("hvd-mpi-end", [this] { watch_call(); });
  } catch (const std::exception& error) {
    HVD_LOG(fatal, error.what());
    std::_Exit(kStuckExitCode);
  }
}

MpiWorld::Call::Call(MpiWorld& of) : world(of) {
  const std::lock_guard lock(world.mutex_);
  world.in_call_ = world.failure_.ok();
  if (!world.in_call_) begun = Status(Code::aborted, world.failure_.message());
}

MpiWorld::Call::~Call() {
  const std::lock_guard lock(world.mutex_);
  world.in_call_ = false;
  world.call_ended_.notify_all();
}

Result<mpi::Communicator*> MpiWorld::communicator_of(const Group& group) {
  auto& known = communicators_[group.id];
  if (known != nullptr) return known.get();
  if (!module_.is_there()) {
    return Status(Code::failed_precondition, "the program has ended MPI (MPI_Finalize)");
  }
  auto made = module_.make(group.ranks, group.id);
  HVD_RETURN_IF_ERROR(made.status());
  known = std::move(*made);
  return known.get();
}

void MpiWorld::watch_call() {
  std::unique_lock lock(mutex_);
  if (call_ended_.wait_for(lock, kMpiGrace, [this] { return !in_call_; })) return;
  HVD_LOG(fatal, "the call of MPI waits for a lost rank: this process ends");
  std::_Exit(kStuckExitCode);
}

bool mpi_has_threads() { return has_threads; }

void end_mpi() {
  const mpi::Module* const module = mpi::loaded_module();
  if (module != nullptr && opener == ::getpid() && !some_world_has_failed) module->end();
}

}  // namespace hvd::runtime
