#include "runtime/net/tcp_info.h"

#include <cstddef>
#include <limits>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace hvd::runtime {
namespace {

// `needed`: the bytes up to the last field that is wanted; older kernels know fewer fields.
std::optional<tcp_info> tcp_info_of(int fd, std::size_t needed) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  if (length < needed) return std::nullopt;
  return info;
}

}  // namespace

std::optional<std::chrono::microseconds> shortest_round_trip(int fd) {
  const auto info =
      tcp_info_of(fd, offsetof(tcp_info, tcpi_min_rtt) + sizeof(tcp_info{}.tcpi_min_rtt));
  // The kernel's word for a connection on which nothing has been acknowledged.
  constexpr auto kNone = std::numeric_limits<decltype(tcp_info::tcpi_min_rtt)>::max();
  if (!info || info->tcpi_min_rtt == kNone) return std::nullopt;
  return std::chrono::microseconds(info->tcpi_min_rtt);
}

std::optional<std::chrono::milliseconds> time_since_data(int fd) {
  const auto info = tcp_info_of(
      fd, offsetof(tcp_info, tcpi_last_data_recv) + sizeof(tcp_info{}.tcpi_last_data_recv));
  if (!info) return std::nullopt;
  return std::chrono::milliseconds(info->tcpi_last_data_recv);
}

}  // namespace hvd::runtime
