#include "runtime/transport/distance.h"

#include <array>
#include <cstdint>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string_view>
#include <sys/socket.h>

#include "base/descriptors.h"
#include "base/socket.h"
#include "runtime/net/tcp_info.h"

namespace hvd::runtime {
namespace {

// Asked for; the kernel grants twice as much, or less.
constexpr int kSendBuffer = 1 << 19;
// No connection is faster, so what it sends in one round trip fits into a buffer of that length.
constexpr std::uint64_t kBytesPerMicrosecond = 10'000;

bool is_on_this_host(int fd) {
  const auto own = local_address(fd);
  const auto peer = peer_address(fd);
  return own.ok() && peer.ok() && own->host == peer->host;
}

// Between processes of one host there is no congestion: a control that paces what it sends (bbr)
// only costs. Cubic needs a privilege where the administrator has chosen others; reno never does.
void be_quick_on_loopback(int fd) {
  for (const std::string_view control : {"cubic", "reno"}) {
    if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control.data(),
                     static_cast<socklen_t>(control.size())) == 0) {
      return;
    }
  }
}

bool ask_for_send_buffer(int fd) {
  return ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof(kSendBuffer)) == 0;
}

// Found out beforehand, since a buffer that has been asked for grows no more: net.core.wmem_max
// bounds it, which not every container can read.
std::uint64_t send_buffer_granted() {
  static const std::uint64_t granted = [] {
    const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int bytes = 0;
    socklen_t length = sizeof(bytes);
    if (!probe || !ask_for_send_buffer(probe.get()) ||
        ::getsockopt(probe.get(), SOL_SOCKET, SO_SNDBUF, &bytes, &length) != 0) {
      return 0;
    }
    return bytes;
  }();
  return granted;
}

bool paces(int fd) {
  std::array<char, 16> name{};
  socklen_t length = name.size();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return false;
  return std::string_view(name.data()).starts_with("bbr");
}

// Left to itself the kernel takes several megabytes ahead of the network. With always more to send
// bbr settles on the rate at which the other end happened to read, and a timer holds back nearly
// every packet. With a buffer of what a short way can hold it is the receiver that sets the pace.
void bound_what_waits(int fd) {
  const auto round_trip = shortest_round_trip(fd);
  if (!round_trip) return;
  const auto microseconds = static_cast<std::uint64_t>(round_trip->count());
  if (send_buffer_granted() >= microseconds * kBytesPerMicrosecond) ask_for_send_buffer(fd);
}

}  // namespace

void suit_distance(int fd) {
  if (is_on_this_host(fd)) {
    be_quick_on_loopback(fd);
  } else if (paces(fd)) {
    bound_what_waits(fd);
  }
}

}  // namespace hvd::runtime
