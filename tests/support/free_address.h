// An address of this machine for a program under test to listen at.
#pragma once

#include "base/socket.h"

namespace hvd::test {

// At 127.0.0.1. The port was free a moment ago, and the kernel assigns other ports first.
inline SocketAddress free_address() {
  const auto listener = *listen_tcp({"127.0.0.1", 0});
  return *local_address(listener.get());
}

}  // namespace hvd::test
