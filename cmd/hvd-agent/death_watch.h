// Tells the loop of a reaper that its worker is dying, before the kernel has freed the worker's
// memory: a thread waits for the lock that the worker's runtime holds (base/machine/life_lock.h).
// A worker that never calls hvd::init() holds none, and its death is seen as that of any child.
#pragma once

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/machine/life_lock.h"
#include "base/status.h"
#include "base/threads.h"

namespace hvd::agent {

class DeathWatch {
 public:
  explicit DeathWatch(LifeLock lock)
      : lock_(std::move(lock)), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  // The worker must have ended.
  ~DeathWatch() {
    lock_.stop();
    thread_.join();
  }
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

  // Begins; the process must not fork any more.
  Status start() {
    return thread_.start([this] {
      while (lock_.wait_for_end()) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof(one));
      }
    });
  }

  // Readable when the worker may be dying.
  int descriptor() const { return event_.get(); }
  void take() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(event_.get(), &count, sizeof(count));
  }

 private:
  LifeLock lock_;
  UniqueFd event_;
  ThreadGroup thread_;
};

}  // namespace hvd::agent
