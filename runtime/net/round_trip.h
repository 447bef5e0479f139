// How long a packet takes to the other end of a TCP connection and back. Any thread.
#pragma once

#include <chrono>
#include <optional>

namespace hvd::runtime {

// The shortest round trip that the kernel has seen on this connection, which is that of the network
// alone; nothing if the kernel does not say.
std::optional<std::chrono::microseconds> shortest_round_trip(int fd);

}  // namespace hvd::runtime
