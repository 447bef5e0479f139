// The address of an abstract Unix socket: a name outside of the file system, freed with its socket.
// It belongs to the network namespace, in which every user may connect to it: check SO_PEERCRED.
#pragma once

#include <cstddef>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>

namespace hvd {

struct AbstractAddress {
  // As much of the name as fits counts.
  explicit AbstractAddress(std::string_view name) {
    address.sun_family = AF_UNIX;
    // The zero before the name makes it an abstract one.
    const std::size_t length = name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

}  // namespace hvd
