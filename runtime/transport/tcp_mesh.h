// The data connections of one rank over TCP: a listening port, a connection to each rank that it
// exchanges messages with, made when the first one is due, and everything that can be stopped at
// once. Parts: MeshConnector makes the connections, Messenger moves the messages,
// and a Gloo context (gloo_context.h) stands on top.
#pragma once

#include <atomic>
#include <memory>

#include "runtime/transport/mesh.h"
#include "runtime/transport/mesh_connector.h"
#include "runtime/transport/messenger.h"

namespace hvd::runtime {

class TcpMesh final : public Mesh {
 public:
  struct Options {
    MeshConnector::Options connector;
    // A peer that acknowledges nothing for so long is gone; also the default of Gloo's waits.
    std::chrono::milliseconds silence_timeout{30'000};
    Messenger::Options messages = {};
  };
  // Listens. The error names the address.
  static Result<std::unique_ptr<TcpMesh>> create(Options options);
  ~TcpMesh() override;
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  std::string address() const override;
  // Makes no connection yet.
  Status connect(const std::vector<std::string>& addresses) override;
  gloo::transport::Context& transport() const override { return *context_; }
  std::shared_ptr<gloo::transport::Context> shared_transport() const { return context_; }
  void abort(const Status& why) override;
  bool aborted() const override { return aborted_; }
  std::vector<int> missed() const override { return messenger_->missed(); }

 private:
  explicit TcpMesh(Options options);
  Status adopt(const Route& route, ProvedSocket socket);

  Options options_;
  SocketAddress where_;
  std::shared_ptr<Messenger> messenger_;  // buffers keep it, too
  MeshConnector connector_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace hvd::runtime
