// SIGUSR1 as the wish to see the flight recorder (docs/timeline.md). Its handler does nothing but
// write to a descriptor, on which the runtime waits.
#pragma once

namespace hvd::worker {

// Once a process; later calls return the same. A descriptor, of an eventfd that stays open, which
// counts the signals; -1 if the program has a handler of its own, or ignores the signal: then that
// stands. Without a handler the signal would end the process.
int listen_for_dump_signal();

}  // namespace hvd::worker
