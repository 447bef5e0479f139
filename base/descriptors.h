// Closing descriptors, and waiting for children, also on kernels and under filters that lack
// close_range() (Linux 5.9) or pidfd_open() (Linux 5.3).
#pragma once

#include <sys/types.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd {

// Closes all descriptors from `first` to `last`, both included. Safe in a signal handler and
// between fork() and exec(). False if that cannot be done.
bool close_descriptors(unsigned first, unsigned last = ~0U);

// A descriptor that becomes readable when this child of the process has ended; the child is still
// to be reaped, unless the kernel has done that (where SIGCHLD is ignored). Without pidfd_open() a
// thread waits for it. Not for the child of a fork beside threads.
Result<UniqueFd> watch_child(pid_t child);

// Whether poll() reports one of these events now, or an error or the end of the other side.
bool is_ready(int fd, short events);

// Blocks until this child has ended, or until the deadline; true if it has. It is still to be
// reaped. Safe where watch_child() is not.
bool wait_for_child(pid_t child, TimePoint deadline);

}  // namespace hvd
