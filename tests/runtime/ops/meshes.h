// Meshes of ranks that are threads of the test, on either transport.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/text.h"
#include "runtime/core/config.h"
#include "runtime/core/threads.h"
#include "runtime/ops/gloo_mesh.h"
#include "runtime/transport/tcp_mesh.h"
#include "tests/runtime/ranks.h"

namespace hvd::test {

// Of all meshes of this program. Made before anything forks.
inline const Token mesh_token = Token::random();

// With how many sockets for each pair, from how many bytes on messages are cut up, and how they are
// protected: all meshes that are made while one of these lives. Several sockets are encrypted
// unless a test says otherwise, so that tests with one and with several see both kinds of
// protection.
class MeshSockets {
 public:
  explicit MeshSockets(int sockets, std::size_t striped_from = 4096)
      : MeshSockets(sockets, striped_from,
                    sockets == 1 ? Protection::integrity : Protection::encrypted) {}
  MeshSockets(int sockets, std::size_t striped_from, Protection protection) : before_(now()) {
    now() = {sockets, striped_from, protection};
  }
  ~MeshSockets() { now() = before_; }
  MeshSockets(const MeshSockets&) = delete;
  MeshSockets& operator=(const MeshSockets&) = delete;
  static runtime::Messenger::Options& now() {
    static runtime::Messenger::Options options;
    return options;
  }

 private:
  runtime::Messenger::Options before_;
};

inline runtime::TcpMesh::Options mesh_options(int rank, int size, std::uint64_t generation = 1) {
  runtime::MeshConnector::Options connector(rank, size, "127.0.0.1", generation, mesh_token);
  connector.connect_timeout = kLong;
  return {std::move(connector), kLong, MeshSockets::now()};
}

inline std::unique_ptr<runtime::TcpMesh> make_tcp_mesh(const runtime::TcpMesh::Options& options) {
  auto mesh = runtime::TcpMesh::create(options);
  if (!mesh.ok()) throw std::runtime_error(mesh.status().to_string());
  return std::move(*mesh);
}

inline std::unique_ptr<runtime::Mesh> make_mesh(runtime::Transport transport, int rank, int size) {
  if (transport == runtime::Transport::hvd) return make_tcp_mesh(mesh_options(rank, size));
  auto mesh = runtime::GlooMesh::create({rank, size, "127.0.0.1", kLong});
  if (!mesh.ok()) throw std::runtime_error(mesh.status().to_string());
  return std::move(*mesh);
}

inline void connect_through(runtime::Exchange& exchange, runtime::Mesh& mesh) {
  const auto addresses = exchange.exchange(mesh.address(), Clock::now() + kLong);
  if (!addresses.ok()) throw std::runtime_error(addresses.status().to_string());
  const Status connected = mesh.connect(*addresses);
  if (!connected.ok()) throw std::runtime_error(connected.to_string());
}

inline void connect_through(Hub& hub, int rank, runtime::Mesh& mesh) {
  HubExchange exchange(hub, rank);
  connect_through(exchange, mesh);
}

inline const char* transport_name(runtime::Transport transport) {
  return transport == runtime::Transport::hvd ? "Hvd" : "GlooTcp";
}

}  // namespace hvd::test
