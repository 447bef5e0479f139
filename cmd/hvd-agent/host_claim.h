// At most one agent of a job serves a host. hvdrun gives up an agent that it no longer hears, and
// starts another one as soon as it reaches the host again. The former agent may not have heard of
// that: what closed its link was lost with the network, and its frozen workers hold their devices.
//
// So each agent listens under a name that only the agents of this job on this host have, an
// abstract Unix socket. A newer agent that finds the name in use connects to it. That tells the
// former agent to kill its workers and to end, and the newer one waits until it has. If the former
// agent is stopped, or takes too long, the newer one kills everything that descends from it, and
// then the agent itself: its reapers may be stopped, too. Owned by the supervisor, on its thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/status.h"
#include "cmd/hvd-agent/event_loop.h"

namespace hvd::agent {

// The abstract name of the agents of a job on what the job calls this host.
std::string claim_name(const std::string& job_id, const std::string& host);

class HostClaim {
 public:
  // Longer than an agent waits for processes that SIGKILL does not end.
  static constexpr std::chrono::seconds kFormerTimeout{12};
  // For the processes of a former agent to die of SIGKILL.
  static constexpr std::chrono::seconds kKillTimeout{5};

  HostClaim(EventLoop& loop, std::function<void()> on_superseded)
      : loop_(loop), on_superseded_(std::move(on_superseded)) {}

  // Calls `on_claimed` when no other agent is left, or when the other one cannot be ended; before
  // it returns if there is nothing to wait for. `host`: the job's name for this host.
  void begin(const std::string& job_id, const std::string& host, std::function<void()> on_claimed,
             TimePoint now);

  TimePoint deadline() const { return next_try_; }
  void on_time(TimePoint now);

 private:
  void try_to_claim(TimePoint now);
  void wait_for_former(UniqueFd connection, TimePoint now);
  void on_former_gone();
  pid_t former_pid() const;  // 0: it is not known
  void begin_to_kill(TimePoint now);
  void kill_former(TimePoint now);
  Status listen();
  void on_connection();
  void finish();

  EventLoop& loop_;
  const std::function<void()> on_superseded_;
  std::function<void()> on_claimed_;  // empty: it was called
  std::string name_;
  UniqueFd former_;  // ends when the former agent does
  Watch former_watch_;
  bool kills_former_ = false;
  TimePoint next_try_ = kNever;
  TimePoint give_up_at_ = kNever;
  UniqueFd listener_;
  Watch listener_watch_;
  std::vector<UniqueFd> newer_;  // open until this process ends, so that a newer agent sees it end
};

}  // namespace hvd::agent
