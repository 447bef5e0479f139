// The newest commit that a rank may have seen, stored where it outlives all workers. For rank 0 of
// a world, one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "rendezvous/client.h"
#include "worker/process/commit_id.h"

namespace hvd::worker {

class HighWater {
 public:
  virtual ~HighWater() = default;
  // None: nothing was ever committed.
  virtual Result<CommitId> read() = 0;
  // aborted: a newer world has committed meanwhile, and this commit does not count.
  virtual Status write(const CommitId& id) = 0;
};

// In the rendezvous service, as MarkWriter says.
class RendezvousHighWater final : public HighWater {
 public:
  explicit RendezvousHighWater(std::shared_ptr<rendezvous::Client> client)
      : client_(std::move(client)) {}
  Result<CommitId> read() override;
  Status write(const CommitId& id) override;

 private:
  std::shared_ptr<rendezvous::Client> client_;
  std::optional<std::uint64_t> version_;  // of the key, as far as is known
};

// The mark of a program that runs by itself: nothing survives it anyway.
class OwnHighWater final : public HighWater {
 public:
  Result<CommitId> read() override { return id_; }
  Status write(const CommitId& id) override {
    id_ = id;
    return {};
  }

 private:
  CommitId id_;
};

}  // namespace hvd::worker
