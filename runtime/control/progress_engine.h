// Arbitrates which thread drives the progress loop of a rank: the dedicated progress thread, or an
// application thread that is blocked in wait(). A caller that drives the loop itself is not woken
// by another thread that was woken for it, which saves two context switches per operation. There is
// one progress thread, and at most one caller drives at a time.
//
//     progress thread   lock = engine.lock(); loop: do the work, wait_in_thread(lock, until)
//     caller            claim(); lock = engine.lock(); loop: begin(lock), do the work; while the
//                       awaited result is missing, poll_briefly(lock, events), and if it finds
//                       nothing wait_in_caller(lock, until), or work without the lock and then
//                       poll_sometimes(lock); at the end release(lock, until)
//
// Work is done under the lock only; the three functions that wait give it up meanwhile. As long as
// a caller drives, events do not wake the progress thread, and the caller also polls the mailbox
// in shared memory (shm/shm_mailbox.h).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/core/brief_wait.h"
#include "runtime/net/poller.h"
#include "runtime/shm/shm_mailbox.h"

namespace hvd::runtime {

class ProgressEngine {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // `own_core`: each rank of this host can have a core of its own.
  ProgressEngine(Poller& poller, bool own_core) : poller_(poller), own_core_(own_core) {}
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  // Once, after the poller was opened and before any other call.
  Status open();
  Lock lock() { return Lock(mutex_); }
  Lock try_lock() { return {mutex_, std::try_to_lock}; }
  // From now on messages in the mailbox end a wait, too, though they are not among the events that
  // are returned. Under the lock.
  void use_mailbox(std::shared_ptr<ShmMailbox> mailbox);

  // --- the progress thread ---

  // `until`: when there is work to do even if nothing has happened.
  std::vector<Poller::Event> wait_in_thread(Lock& lock, TimePoint until);

  // --- a caller ---

  // False: another caller drives already.
  bool claim() { return !is_claimed_.exchange(true); }
  // From now on events come to this caller. No effect if they do already.
  void begin(Lock& lock);
  // Spins or yields for a moment; false if nothing has come.
  bool poll_briefly(Lock& lock, std::vector<Poller::Event>& events);
  std::vector<Poller::Event> wait_in_caller(Lock& lock, TimePoint until);
  // For a caller with other work to do between its polls: polls at most once in 500 us, since a
  // poll costs a system call.
  std::vector<Poller::Event> poll_sometimes(Lock& lock);
  // The caller is about to sleep elsewhere: the progress thread takes over until the next begin().
  // May be called again and again.
  void suspend(Lock& lock, TimePoint until);
  // The caller needs no more progress.
  void release(Lock& lock, TimePoint until);

  // --- any thread ---

  // Makes the progress thread run its loop once, even while a caller drives.
  void wake_thread() { thread_poller_.wake(); }
  // The result that the caller waits for may have come by way of another thread.
  void notify_caller() {
    if (caller_drives_) poller_.wake();
  }

 private:
  void hand_to_thread(Lock& lock, TimePoint until, bool is_back_soon);

  Poller& poller_;
  const bool own_core_;
  BriefWait brief_wait_;                 // of the caller that drives
  std::shared_ptr<ShmMailbox> mailbox_;  // set once, under the lock
  Poller thread_poller_;                 // watches poller_, unless a caller drives
  std::mutex mutex_;
  TimePoint thread_until_{};  // when the progress thread wakes at the latest
  TimePoint polled_{};        // when the caller polled last
  std::atomic<bool> is_claimed_ = false;
  std::atomic<bool> caller_drives_ = false;  // changes under the lock only
};

}  // namespace hvd::runtime
