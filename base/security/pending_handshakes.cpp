#include "base/security/pending_handshakes.h"

#include <arpa/inet.h>
#include <array>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace hvd {
namespace {

constexpr std::size_t kFewest = 16;
constexpr std::size_t kNetworkBytes = 8;  // of an IPv6 address: one party has at least a /64

template <std::size_t kSize>
std::string text_of(int family, const std::array<unsigned char, kSize>& bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(family, bytes.data(), text.data(), text.size()) == nullptr ? "" : text.data();
}

}  // namespace

std::size_t pending_limit(std::size_t most, std::size_t parts) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return most;
  return std::min(most, std::max<std::size_t>(kFewest, files.rlim_cur / parts));
}

std::string origin_of(const void* address) {
  const int family = static_cast<const sockaddr*>(address)->sa_family;
  std::array<unsigned char, 4> v4{};
  std::array<unsigned char, 16> v6{};
  if (family == AF_INET) {
    const auto& raw = static_cast<const sockaddr_in*>(address)->sin_addr;
    std::copy_n(reinterpret_cast<const unsigned char*>(&raw), v4.size(), v4.begin());
    return text_of(AF_INET, v4);
  }
  if (family != AF_INET6) return {};
  const in6_addr& raw = static_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&raw) != 0) {
    std::copy_n(raw.s6_addr + (v6.size() - v4.size()), v4.size(), v4.begin());
    return text_of(AF_INET, v4);
  }
  std::copy_n(raw.s6_addr, kNetworkBytes, v6.begin());
  return text_of(AF_INET6, v6) + "/64";
}

std::string origin_of_peer(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return origin_of(&address);
}

}  // namespace hvd
