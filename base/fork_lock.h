// Locks of the process that a forked child finds free. A child does not have the thread that holds
// a lock while the process is forked: the lock would stay locked there for ever.
#pragma once

#include <mutex>

namespace hvd {

// From now on the thread that forks takes this mutex, and both processes give it back. fork() waits
// for whoever holds it: it is for locks that are held for a moment. The mutex is never destroyed.
// Any thread may call. A static variable of a function has a lock of the compiler's besides, for
// which no fork can wait: the file that has one calls the function when the library is loaded.
void keep_free_in_children(std::mutex& mutex);

}  // namespace hvd
