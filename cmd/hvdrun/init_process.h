// hvdrun as the first process of a container (process 1 of its PID namespace).
#pragma once

namespace hvd::cli {

// The kernel drops every signal that process 1 does not handle, so SIGTERM would not end a command
// that only waits, and it makes process 1 the parent of all orphans, which stay zombies until they
// are reaped. In process 1 this function therefore forks and returns in the child, which is hvdrun
// as everywhere else. Process 1 itself passes signals on to the child, reaps whatever ends, and
// ends as the child did, with 128 + the signal if a signal killed it.
//
// In any other process it returns at once. To be called before the process has threads.
void leave_process_one();

}  // namespace hvd::cli
