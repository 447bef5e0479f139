// Ranks that are threads, each with a mesh of our transport, and messages between them through
// Gloo's interfaces.
#pragma once

#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <numeric>
#include <string>

#include "runtime/transport/gloo_context.h"
#include "tests/runtime/ops/meshes.h"

namespace hvd::test {

// One buffer of bytes on one rank.
class Bytes {
 public:
  Bytes(runtime::TcpMesh& mesh, std::size_t count, int seed = 0) : data(count) {
    std::uint8_t* const bytes = data.data();  // many, and tests are not optimised
    for (std::size_t i = 0; i < count; ++i) bytes[i] = byte_of(seed, i);
    buffer = mesh.transport().createUnboundBuffer(data.data(), count);
  }
  static std::uint8_t byte_of(int seed, std::size_t i) {
    return static_cast<std::uint8_t>((i * 2'654'435'761U >> 13) + static_cast<std::size_t>(seed));
  }
  bool is_from(int seed) const {
    const std::uint8_t* const bytes = data.data();
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (bytes[i] != byte_of(seed, i)) return false;
    }
    return true;
  }
  void send(int to, std::uint64_t slot) { buffer->send(to, slot); }
  void receive(int from, std::uint64_t slot) { buffer->recv(from, slot); }
  void wait_sent() { buffer->waitSend(kLong); }
  int wait_received() {
    int from = -1;
    buffer->waitRecv(&from, kLong);
    return from;
  }

  std::vector<std::uint8_t> data;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
};

// A gloo::Context that runs on a mesh.
inline std::shared_ptr<gloo::Context> gloo_on(const runtime::TcpMesh& mesh) {
  struct Context final : gloo::Context {
    Context(int own_rank, int all, std::shared_ptr<gloo::transport::Context> transport)
        : gloo::Context(own_rank, all) {
      transportContext_ = std::move(transport);
    }
  };
  auto transport = mesh.shared_transport();
  const int rank = transport->rank;
  const int size = transport->size;
  auto context = std::make_shared<Context>(rank, size, std::move(transport));
  context->setTimeout(kLong);
  return context;
}

// The text of the TransportError that `work` throws; a complaint if there is none.
template <typename Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const gloo::Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

using MeshBody = std::function<void(int rank, runtime::TcpMesh& mesh)>;

// Runs `body` on as many ranks, and waits for all; nobody leaves before all have come to the end.
inline void on_meshes(int size, const MeshBody& body) {
  Hub addresses(size);
  Hub end(size);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto mesh = make_tcp_mesh(mesh_options(rank, size));
      connect_through(addresses, rank, *mesh);
      try {
        body(rank, *mesh);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      EXPECT_TRUE(end.exchange(rank, "", Clock::now() + kLong).ok());
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace hvd::test
