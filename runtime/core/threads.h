// Threads of the runtime. They take no signals: handlers run in the program's own threads, and
// writing to a socket whose other end has gone is an error, not a SIGPIPE.
#pragma once

#include <csignal>
#include <ctime>
#include <functional>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <utility>

#include "base/text.h"
#include "runtime/core/time_slice.h"

namespace hvd::runtime {

// Blocks, in the calling thread and the threads that it starts, every signal except those that
// report a fault of the program itself.
class SignalShield {
 public:
  SignalShield() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalShield() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalShield(const SignalShield&) = delete;
  SignalShield& operator=(const SignalShield&) = delete;

 private:
  sigset_t before_{};
};

// For a thread of the application while it writes: what ends a process by default is an error of
// the write alone. SIGPIPE comes when a peer is lost, SIGXFSZ when a file may not grow (ulimit -f).
// All other signals reach the thread, so that Ctrl-C ends a program that waits for other ranks.
class WriteSignalShield {
 public:
  explicit WriteSignalShield(int signal) : signal_(signal) {
    sigemptyset(&set_);
    sigaddset(&set_, signal_);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~WriteSignalShield() {
    // One that came in the meantime was caused by us.
    const timespec at_once{};
    while (sigismember(&before_, signal_) == 0 &&
           sigtimedwait(&set_, nullptr, &at_once) == signal_) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WriteSignalShield(const WriteSignalShield&) = delete;
  WriteSignalShield& operator=(const WriteSignalShield&) = delete;

 private:
  const int signal_;
  sigset_t set_{};
  sigset_t before_{};
};

// True on threads of a world: they must not wait for work that only threads of a world do, nor for
// the end of such threads.
inline thread_local bool is_runtime_thread = false;

// While it lives, the calling application thread drives the progress of a world in the place of a
// runtime thread. It may hold locks of the program, so callbacks of the program must not run on it.
class CallerProgressScope {
 public:
  // `yield`: lets another thread drive. Called before this thread sleeps for any other reason.
  explicit CallerProgressScope(std::function<void()> yield) : yield_(std::move(yield)) {
    is_runtime_thread = true;
    current = this;
  }
  ~CallerProgressScope() {
    is_runtime_thread = false;
    current = nullptr;
  }
  CallerProgressScope(const CallerProgressScope&) = delete;
  CallerProgressScope& operator=(const CallerProgressScope&) = delete;

  // Whether the calling thread is within such a scope.
  static bool is_active() { return current != nullptr; }
  // May be called on any thread that is about to sleep until other threads have done something.
  static void about_to_sleep() {
    if (current == nullptr) return;
    current->wake_soon();
    current->yield_();
  }
  // This thread is about to sleep until there is something to drive. From then on it gets its core
  // back soon. A wait that is over without a sleep need not pay for that.
  void wake_soon() { time_slice_.begin(); }

 private:
  inline static thread_local CallerProgressScope* current = nullptr;
  std::function<void()> yield_;
  ShortTimeSlice time_slice_;
};

// Starts a thread with a name of at most 15 characters, as top and gdb show it. Throws
// std::system_error, which names the thread and the limits that may be in the way.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  const SignalShield shield;
  try {
    std::thread thread([body = std::move(body)]() mutable {
      is_runtime_thread = true;
      body();
    });
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    throw std::system_error(
        error.code(),
        cat("start thread ", name,
            ", which ulimit -u, ulimit -v, pids.max of a cgroup or seccomp may forbid"));
  }
}

// The same for a thread that other ranks wait for: it gets a core as soon as it wakes.
template <typename Body>
std::thread start_prompt_thread(const char* name, Body body) {
  return start_thread(name, [body = std::move(body)]() mutable {
    ShortTimeSlice time_slice;
    time_slice.begin();
    body();
  });
}

}  // namespace hvd::runtime
