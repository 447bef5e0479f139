// An address of this machine for a program under test to listen at.
#pragma once

#include <random>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::test {

// Nothing listens there, and nobody else is given it while the program starts: each call draws an
// address of 127.0.0.0/8, with a port below those that the kernel assigns by itself.
inline SocketAddress free_address() {
  std::random_device random;
  std::uniform_int_distribution<int> byte(1, 254);
  std::uniform_int_distribution<int> port(10000, 32767);
  for (;;) {
    const SocketAddress drawn{cat("127.", byte(random), ".", byte(random), ".", byte(random)),
                              static_cast<std::uint16_t>(port(random))};
    if (listen_tcp(drawn)) {
      return drawn;
    }
  }
}

}  // namespace hvd::test
