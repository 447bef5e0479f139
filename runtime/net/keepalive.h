// By default TCP does not notice that the peer's host, or the network to it, has gone: never while
// nothing is sent, and otherwise only after a quarter of an hour. Any thread.
#pragma once

#include <chrono>

namespace hvd::runtime {

// From now on this connection breaks with ETIMEDOUT once the peer's kernel has not answered for
// `timeout`, whether data is sent or not. A process that is stopped does not count as gone, unless
// data is sent to it and it reads nothing for that long. Connections within this machine are left
// as they are: the kernel reports their end at once, and a job that is stopped as a whole must be
// able to continue.
void enable_keepalive(int fd, std::chrono::milliseconds timeout);

}  // namespace hvd::runtime
