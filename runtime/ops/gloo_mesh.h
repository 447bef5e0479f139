// The connections of one rank to the others, on Gloo's stock TCP transport, and what that transport
// lacks: it can be aborted, and forming and leaving it take no 10 ms per peer.
//
// Each rank is connected to every other: process sets and alltoall may need any pair, at any time,
// and only connecting can tell a rank that is not in the set. Gloo keeps its descriptors to itself,
// so the mesh finds them by the addresses that its pairs report and keeps duplicates: shutdown(2)
// on a duplicate wakes each waiter of the connection, and a duplicate can never be mistaken for
// a descriptor that was opened since.
//
// create(), connect() and the destructor belong to one thread; abort() is safe from any. The thread
// that calls create() must have SIGPIPE blocked: Gloo's thread inherits that, and writes to sockets
// that may be gone.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/descriptors.h"
#include "base/status.h"
#include "runtime/transport/mesh.h"

namespace hvd::runtime {

class AbortableTransport;

struct MeshOptions {
  int rank = 0;
  int size = 1;
  std::string bind_address;                   // where the others reach this rank: an IP address
  std::chrono::milliseconds connect_timeout;  // of one connection
};

class GlooMesh final : public Mesh {
 public:
  // Listens. The error names the address.
  static Result<std::unique_ptr<GlooMesh>> create(const MeshOptions& options);
  ~GlooMesh() override;
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  std::string address() const override;
  // Connects to all partners. Blocks.
  Status connect(const std::vector<std::string>& addresses) override;

  gloo::transport::Context& transport() const override;
  void abort(const Status& why) override;
  bool aborted() const override { return aborted_; }

 private:
  struct Gloo;
  class Ticker;
  explicit GlooMesh(const MeshOptions& options);
  Status listen();
  Status connect_pair(int partner, const std::string& its_addresses);
  void keep_descriptors();

  MeshOptions options_;
  std::vector<int> partners_;
  std::unique_ptr<Ticker> ticker_;  // outlives the device, whose loop calls it
  std::unique_ptr<Gloo> gloo_;
  std::shared_ptr<AbortableTransport> transport_;  // over Gloo's, once all pairs are listening
  std::set<std::string> listening_;                // endpoints that only this process can have
  std::set<std::string> dialled_;                  // those of others that we connect to
  std::mutex mutex_;
  std::vector<UniqueFd> descriptors_;  // guarded by mutex_
  std::atomic<bool> aborted_ = false;
};

}  // namespace hvd::runtime
