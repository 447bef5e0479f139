#include "runtime/net/round_trip.h"

#include <cstddef>
#include <limits>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace hvd::runtime {

std::optional<std::chrono::microseconds> shortest_round_trip(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  if (length < offsetof(tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt)) return std::nullopt;
  // The kernel's word for a connection on which nothing has been acknowledged.
  if (info.tcpi_min_rtt == std::numeric_limits<decltype(info.tcpi_min_rtt)>::max()) {
    return std::nullopt;
  }
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

}  // namespace hvd::runtime
