// Which connection of a rank's: to whom, and which of several. A value.
#pragma once

#include <tuple>

namespace hvd::runtime {

struct Route {
  int rank;
  int socket = 0;
  friend bool operator<(const Route& a, const Route& b) {
    return std::tie(a.rank, a.socket) < std::tie(b.rank, b.socket);
  }
};

}  // namespace hvd::runtime
