// Facts that the kernel keeps about a TCP connection; nothing where the kernel does not say. Any
// thread.
#pragma once

#include <chrono>
#include <optional>

namespace hvd::runtime {

// The shortest round trip that the kernel has seen on this connection, which is that of the network
// alone.
std::optional<std::chrono::microseconds> shortest_round_trip(int fd);
// How long ago the last data came, whether it was read or not; without any, the age of the
// connection. Answers to keepalive probes are no data.
std::optional<std::chrono::milliseconds> time_since_data(int fd);

}  // namespace hvd::runtime
