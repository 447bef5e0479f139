// A reaper stands between the agent and one worker: a process of its own, forked from the agent,
// whose only child at first is the worker. It is the subreaper of everything that descends from the
// worker, so that the kernel itself keeps the account of which process belongs to whom: a daemon
// that left its parent, session and group becomes the child of its worker's reaper and of no other.
// "Nothing is left of this worker" is then one question with one answer: the reaper has no child.
//
// It takes orders from the agent and reports to it, over a socket pair of whole records. End of
// file there means that the agent is gone, however it ended: the reaper kills everything and ends.
//
// The lease is the reaper's to obey: it reads the board (lease.h), freezes all that descends from
// the worker when the lease has run out or the job is paused, lets it go on when it was renewed,
// and kills it when the agent has heard nothing for too long (orphan_timer.h). So it holds also
// while the agent is stopped.
#pragma once

#include <cstdint>
#include <sys/types.h>

#include "base/status.h"
#include "base/unique_fd.h"
#include "cmd/hvd-agent/launch.h"
#include "cmd/hvd-agent/lease.h"

namespace hvd::agent {

// Both are records of one binary talking to itself across a fork, so plain memory is their form.
struct ReaperOrder {
  enum class Kind : std::int32_t {
    signal,  // to the worker's process group
    kill,    // SIGKILL to everything, until nothing is left
    look,    // at the lease: it was renewed, or the job is paused
  };
  Kind kind = Kind::kill;
  std::int32_t signal_number = 0;
};

struct ReaperReport {
  enum class Kind : std::int32_t {
    launched,       // pid
    launch_failed,  // error_number, message; nothing follows
    exited,         // pid, wait_status: the worker itself; others may still live
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
  // Orders are sent here and reports received, one record a message, without blocking. End of file:
  // the reaper is gone, and unless it was killed itself, so is everything it kept.
  UniqueFd socket;
};

// Forks a reaper that starts the worker at once.
Result<Reaper> fork_reaper(const WorkerStart& start, const SharedLease& lease);

}  // namespace hvd::agent
