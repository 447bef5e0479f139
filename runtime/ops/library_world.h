// A library of collectives in one world: its communicators, one for each process set, made with the
// set's first batch. Nothing can interrupt a call of the library. If the world fails while one is
// under way, the process ends with exit code 70, at the latest kLibraryGrace later, unless the call
// returns by then or the launcher has ended it before.
//
// open(), call() and forget() are for one thread at a time; abort() is safe from any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/status.h"
#include "runtime/ops/library.h"
#include "runtime/ops/operation.h"

namespace hvd::runtime {

inline constexpr std::chrono::seconds kLibraryGrace{5};

class LibraryWorld {
 public:
  explicit LibraryWorld(std::unique_ptr<Library> library) : library_(std::move(library)) {}
  // Frees the communicators, unless the world has failed.
  ~LibraryWorld();
  LibraryWorld(const LibraryWorld&) = delete;
  LibraryWorld& operator=(const LibraryWorld&) = delete;

  const Library& library() const { return *library_; }
  Status open();
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
  // A call of the library is under way, unless the world had failed before.
  struct Call {
    explicit Call(LibraryWorld& world);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    LibraryWorld& world;
    Status begun;
  };
  Result<LibraryCommunicator*> communicator_of(const Group& group);
  void watch_call();

  const std::unique_ptr<Library> library_;
  std::map<int, std::unique_ptr<LibraryCommunicator>> communicators_;  // by process set
  std::mutex mutex_;
  std::condition_variable call_ended_;
  bool in_call_ = false;  // under mutex_
  Status failure_;        // under mutex_
  std::thread watch_;     // started under mutex_
};

}  // namespace hvd::runtime
