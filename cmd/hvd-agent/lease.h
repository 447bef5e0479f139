// The agent's lease (base/protocol/agent_link.h): until when the workers may run. In three parts:
// the clock, the arithmetic, and the shared page from which the reapers read its result. When an
// agent that hears nothing kills its workers is in orphan_timer.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <sys/types.h>

#include "base/status.h"

namespace hvd::agent {

// Unlike hvd::Clock, this clock goes on while the machine is suspended, and so does the lease.
struct LeaseClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<LeaseClock>;
  // NOLINTNEXTLINE(readability-identifier-naming): the standard's name for it
  static constexpr bool is_steady = true;
  static time_point now() noexcept;
};
using LeaseTime = LeaseClock::time_point;
inline constexpr LeaseTime kNoLeaseEnd = LeaseTime::max();

// When the lease ends. Pure: it is told what happened and when. A default one never ends.
class Lease {
 public:
  Lease() = default;
  // Zero means that it never ends.
  Lease(std::chrono::milliseconds length, LeaseTime ready_sent);

  // A heartbeat has come, and its answer is on its way from `now` on. data_loss if no driver can
  // have sent it.
  Status heartbeat(std::uint64_t sequence, std::uint64_t acknowledged, LeaseTime now);

  // The workers may run until then.
  LeaseTime runs_until() const { return runs_until_; }

 private:
  // So many answers that the driver has not named yet are remembered. A driver that names
  // an older one renews nothing.
  static constexpr std::size_t kRemembered = 4096;
  struct Answer {
    std::uint64_t sequence = 0;
    LeaseTime sent;
  };

  std::chrono::milliseconds length_{0};
  LeaseTime runs_until_ = kNoLeaseEnd;
  std::deque<Answer> unnamed_;
  std::uint64_t last_sequence_ = 0;
};

// A page of memory that the agent shares with its reapers, made before the first of them. The agent
// writes there until when the lease runs, whether the job is paused, and that it has heard the
// driver; each reaper acts on it by itself, even while the agent is stopped or gone. A renewal is a
// plain store that wakes no process: a reaper reads the page again when the known end has come.
class SharedLease {
 public:
  static Result<SharedLease> create();
  SharedLease(SharedLease&& other) noexcept;
  SharedLease& operator=(SharedLease&&) = delete;
  ~SharedLease();

  // The agent's side. For reapers that are forked later: the limit of silence (zero: none). The
  // driver, if it is a process of this machine (0: it is not).
  void begin(std::chrono::milliseconds orphan_timeout, pid_t local_driver);
  void write(const Lease& lease);
  // The reapers are to be told to look.
  void pause(bool paused);
  void note_heard();
  // True if a reaper may have frozen its worker since the last time that this was true: after a
  // renewal all reapers are then to be told to look.
  bool take_frozen();

  // A reaper's side. It notes that it is about to freeze and then looks at the end once more; the
  // agent writes the end and then looks at the note. So a renewal is missed by one of them at most.
  LeaseTime runs_until() const;
  bool paused() const { return page_->paused; }
  void note_frozen() const;
  // How often the agent has heard the driver.
  std::uint64_t times_heard() const { return page_->times_heard; }
  std::chrono::milliseconds orphan_timeout() const { return page_->orphan_timeout; }
  pid_t local_driver() const { return page_->local_driver; }

 private:
  struct Page {
    std::atomic<std::int64_t> runs_until;
    std::atomic<std::uint64_t> times_heard;
    std::atomic<bool> paused;
    std::atomic<bool> frozen;
    std::chrono::milliseconds orphan_timeout;
    std::atomic<pid_t> local_driver;
  };
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // or it could not be shared
  explicit SharedLease(Page* page) : page_(page) {}

  Page* page_;
};

}  // namespace hvd::agent
