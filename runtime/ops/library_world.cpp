#include "runtime/ops/library_world.h"

#include <cstdlib>
#include <exception>

#include "base/log.h"
#include "base/text.h"
#include "runtime/core/threads.h"

namespace hvd::runtime {
namespace {

// EX_SOFTWARE.
constexpr int kStuckExitCode = 70;

}  // namespace

LibraryWorld::~LibraryWorld() {
  if (watch_.joinable()) watch_.join();
  if (failure_.ok() && library_->usable().ok()) return;
  // The library would wait for members that are lost, or is not there any more.
  for (auto& [set, communicator] : communicators_) static_cast<void>(communicator.release());
}

Status LibraryWorld::open() {
  const Call scope(*this);
  HVD_RETURN_IF_ERROR(scope.begun);
  return library_->open();
}

void LibraryWorld::forget(int process_set) {
  const Call scope(*this);
  if (scope.begun.ok() && library_->usable().ok()) communicators_.erase(process_set);
}

void LibraryWorld::abort(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = why;
  library_->world_failed();
  if (!in_call_) return;
  // At once, since the launcher may end this process soon.
  HVD_LOG(error, "the world has failed (" << why.message() << ") during a call of "
                                          << library_->title() << ", which nothing can interrupt");
  try {
    watch_ = start_thread("hvd-library-end", [this] { watch_call(); });
  } catch (const std::exception& error) {
    HVD_LOG(fatal, error.what());
    std::_Exit(kStuckExitCode);
  }
}

LibraryWorld::Call::Call(LibraryWorld& of) : world(of) {
  const std::lock_guard lock(world.mutex_);
  world.in_call_ = world.failure_.ok();
  if (!world.in_call_) begun = Status(Code::aborted, world.failure_.message());
}

LibraryWorld::Call::~Call() {
  const std::lock_guard lock(world.mutex_);
  world.in_call_ = false;
  world.call_ended_.notify_all();
}

Result<LibraryCommunicator*> LibraryWorld::communicator_of(const Group& group) {
  auto& known = communicators_[group.id];
  if (known != nullptr) return known.get();
  HVD_RETURN_IF_ERROR(library_->usable());
  auto made = library_->make(group);
  HVD_RETURN_IF_ERROR(made.status());
  known = std::move(*made);
  return known.get();
}

void LibraryWorld::watch_call() {
  std::unique_lock lock(mutex_);
  if (call_ended_.wait_for(lock, kLibraryGrace, [this] { return !in_call_; })) return;
  HVD_LOG(fatal,
          "the call of " << library_->title() << " waits for a lost rank: this process ends");
  std::_Exit(kStuckExitCode);
}

}  // namespace hvd::runtime
