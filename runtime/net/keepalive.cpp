#include "runtime/net/keepalive.h"

#include <algorithm>
#include <cstdint>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/socket.h"

namespace hvd::runtime {
namespace {

void set_option(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

// Both ends belong to one kernel, which reports at once when either is closed.
bool within_this_machine(int fd) {
  const auto here = local_address(fd);
  const auto there = peer_address(fd);
  if (!here.ok() || !there.ok()) return false;
  return there->host == here->host || there->host.starts_with("127.") || there->host == "::1";
}

}  // namespace

void enable_keepalive(int fd, std::chrono::milliseconds timeout) {
  if (within_this_machine(fd)) return;
  const auto seconds = std::max<std::int64_t>(1, timeout.count() / 1000);
  const int probe = static_cast<int>(std::clamp<std::int64_t>(seconds / 4, 1, 60));
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, probe);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, probe);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<int>(std::min<std::int64_t>(timeout.count(), 1'000'000'000)));
}

}  // namespace hvd::runtime
