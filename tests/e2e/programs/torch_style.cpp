// Meets its peers as torch's env:// does: rank 0 listens on MASTER_PORT, the others connect to
// MASTER_ADDR:MASTER_PORT and send their ranks. Rank 0 prints "met N".
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/socket.h"
#include "base/text.h"

namespace {

using namespace std::chrono_literals;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) {
    std::fprintf(stderr, "%s is not set\n", name);
    std::exit(2);
  }
  return value;
}

int host_them(const hvd::SocketAddress& master, int world, hvd::TimePoint deadline) {
  const auto listener = hvd::listen_tcp(master);
  if (!listener.ok()) {
    std::fprintf(stderr, "%s\n", listener.status().to_string().c_str());
    return 3;
  }
  std::set<std::string> met;
  while (static_cast<int>(met.size()) < world - 1) {
    const auto peer = hvd::accept_tcp(listener->get(), deadline);
    if (!peer.ok()) return 4;
    std::array<char, 16> name{};
    std::string text;
    while (const ssize_t got = ::read(peer->get(), name.data(), name.size())) {
      if (got < 0) return 5;
      text.append(name.data(), static_cast<std::size_t>(got));
    }
    met.insert(text);
  }
  std::printf("met %zu\n", met.size());
  return 0;
}

int join_them(const hvd::SocketAddress& master, const std::string& rank, hvd::TimePoint deadline) {
  while (hvd::Clock::now() < deadline) {
    const auto connection = hvd::connect_tcp(master, deadline);
    if (connection.ok()) {
      return hvd::send_all(connection->get(), rank, deadline).ok() ? 0 : 6;
    }
    std::this_thread::sleep_for(5ms);  // rank 0 does not listen yet
  }
  return 7;
}

}  // namespace

int main() {
  const auto deadline = hvd::Clock::now() + 30s;
  const auto port = hvd::parse_number<std::uint16_t>(variable("MASTER_PORT"));
  const auto world = hvd::parse_number<int>(variable("WORLD_SIZE"));
  if (!port || *port == 0 || !world) return 8;
  const hvd::SocketAddress master{variable("MASTER_ADDR"), *port};
  if (variable("LOCAL_RANK").empty() || variable("LOCAL_WORLD_SIZE").empty()) return 8;
  const std::string rank = variable("RANK");
  return rank == "0" ? host_them(master, *world, deadline) : join_them(master, rank, deadline);
}
