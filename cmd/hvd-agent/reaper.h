// A reaper is the process between the agent and one worker: it is forked from the agent, and its
// only child at first is the worker. It is the subreaper (PR_SET_CHILD_SUBREAPER) of all
// descendants of the worker, so that the kernel accounts for them: a daemon that leaves its parent,
// session and group becomes a child of its worker's reaper. The worker has left nothing behind when
// its reaper has no child.
//
// The reaper takes orders from the agent and reports to it, over a socket pair of whole records.
// End of file there means that the agent is gone, however it ended: the reaper kills everything and
// ends.
//
// The reaper enforces the lease: it reads the shared lease (lease.h), freezes all descendants when
// the lease has run out or the job is paused, thaws them when it was renewed, and kills them when
// the agent has heard nothing for too long (orphan_timer.h). All of this also works while the agent
// is stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <sys/types.h>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/status.h"
#include "cmd/hvd-agent/launch.h"
#include "cmd/hvd-agent/lease.h"

namespace hvd::agent {

// Orders and reports pass between two processes of one binary, so plain memory is their format.
struct ReaperOrder {
  enum class Kind : std::int32_t {
    signal,       // to the worker's process group; SIGUSR1, SIGUSR2: to what handles it
    kill,         // SIGKILL to everything, until nothing is left
    check_lease,  // it was renewed, or the job is paused
  };
  Kind kind = Kind::kill;
  std::int32_t signal_number = 0;
};

struct ReaperReport {
  enum class Kind : std::int32_t {
    launched,       // pid
    launch_failed,  // error_number, message; nothing follows
    exited,         // pid, wait_status: the worker itself; others may still live. message: its
                    // control groups, as /proc/PID/cgroup has them
    unkillable,     // pid: may not be killed, or does not die
  };
  Kind kind = Kind::launched;
  std::int32_t pid = 0;
  std::int32_t wait_status = 0;
  std::int32_t error_number = 0;
  char message[4096] = {};  // ends with a zero
};

struct Reaper {
  pid_t pid = -1;
  // Orders are sent here and reports received, one record a message, without blocking. End of file
  // means that the reaper is gone and, unless it was killed itself, all descendants are gone too.
  UniqueFd socket;
};

// The outcome of the wait for the end of the worker before, whose place the new one takes.
enum class PlaceWait { free, overdue, stopped, agent_gone };
// Waits until the process of this pidfd is gone, for at most so long. Signals that the agent orders
// meanwhile are kept for the worker. Blocking.
PlaceWait wait_for_place(int predecessor, int agent, TimePoint deadline, std::vector<int>& signals);

// Forks a reaper that starts the worker at once. `outlives_driver`: it keeps no standard error that
// hvdrun was given.
Result<Reaper> fork_reaper(const WorkerStart& start, const SharedLease& lease,
                           bool outlives_driver);

// Hands out the reports that have come from the reaper at this socket, without waiting. False: the
// reaper has gone, and no other follows.
bool receive_reports(const UniqueFd& reaper,
                     const std::function<void(const ReaperReport&)>& on_report);

}  // namespace hvd::agent
