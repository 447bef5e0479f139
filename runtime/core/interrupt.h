// A request from outside to end a world, while it is being formed or later: a newer world is known,
// for example. World::create() returns then, and everything in flight fails, for the reason given.
//
// Made before the world, and shared with it (WorldSpec::interrupt). Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "runtime/core/failure.h"

namespace hvd::runtime {

class Interrupt {
 public:
  Interrupt() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Only the first call counts.
  void raise(const Failure& why) {
    const std::lock_guard lock(mutex_);
    if (raised_) return;
    why_ = why;
    raised_ = true;
    const std::uint64_t once = 1;
    [[maybe_unused]] const auto put = ::write(descriptor_.get(), &once, sizeof(once));
  }
  bool raised() const { return raised_; }
  Failure why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  // Readable once raised.
  int descriptor() const { return descriptor_.get(); }

 private:
  UniqueFd descriptor_;
  mutable std::mutex mutex_;
  std::atomic<bool> raised_ = false;
  Failure why_;
};

}  // namespace hvd::runtime
