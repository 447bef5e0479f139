// Threads of the runtime take no signals: handlers run in the program's own threads, and a socket
// whose other end has gone is an error, not a SIGPIPE.
#pragma once

#include <csignal>
#include <ctime>
#include <functional>
#include <pthread.h>
#include <thread>
#include <utility>

namespace hvd::runtime {

// Blocks, in the calling thread and those that it starts, every signal but those that say that the
// program itself is broken.
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

// For the program's own thread while it writes to sockets: a peer that has gone is an error there,
// too. All other signals reach it, so that Ctrl-C ends a program that waits for the others.
class BrokenPipeShield {
 public:
  BrokenPipeShield() {
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  ~BrokenPipeShield() {
    // What came in the meantime was ours.
    const timespec at_once{};
    while (sigismember(&before_, SIGPIPE) == 0 &&
           sigtimedwait(&broken_pipe_, nullptr, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipeShield(const BrokenPipeShield&) = delete;
  BrokenPipeShield& operator=(const BrokenPipeShield&) = delete;

 private:
  sigset_t broken_pipe_{};
  sigset_t before_{};
};

// This is a thread of a world: it must not wait for what only threads of a world do, nor for their
// end.
inline thread_local bool is_own_thread = false;

// A thread of the program that does the work of one of these meanwhile. It may hold locks of the
// program, which callbacks of the program must not meet.
class HelpingThread {
 public:
  // `step_aside`: lets somebody else do that work. Called before the thread sleeps for anything but
  // that work.
  explicit HelpingThread(std::function<void()> step_aside) : step_aside_(std::move(step_aside)) {
    is_own_thread = true;
    current = this;
  }
  ~HelpingThread() {
    is_own_thread = false;
    current = nullptr;
  }
  HelpingThread(const HelpingThread&) = delete;
  HelpingThread& operator=(const HelpingThread&) = delete;

  // Whether the calling thread is one.
  static bool is_this() { return current != nullptr; }
  // Of any thread: it is about to sleep until others have done something.
  static void about_to_sleep() {
    if (current != nullptr) current->step_aside_();
  }

 private:
  inline static thread_local HelpingThread* current = nullptr;
  std::function<void()> step_aside_;
};

// A thread with a name of at most 15 characters, as top and gdb show it.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  const SignalShield shield;
  std::thread thread([body = std::move(body)]() mutable {
    is_own_thread = true;
    body();
  });
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace hvd::runtime
