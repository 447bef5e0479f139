// The newest commit that a rank may have seen, stored where it outlives all workers, and the steps
// of writing it down. For rank 0 of a world, one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/protocol/world_document.h"
#include "base/status.h"
#include "rendezvous/client.h"

namespace hvd::worker {

// How rank 0 raises the high-water mark at a commit. Rank 0 of an older world, which does not know
// yet that it is over, may do the same at the same time, and a write whose answer is lost may have
// been done or not. So a write is made only on top of the version that was read, and a doubtful one
// is followed by another read. Pure, a value of one commit, for one thread.
//
//     MarkWriter mark(id, known_version);
//     while (mark.next() == read or write) do it, and tell it what came of it
//
// A commit may be reported as one only after this has ended with `written`.
class MarkWriter {
 public:
  enum class Next {
    read,        // the key, with its version
    write,       // `id`, if the key still has version()
    written,     // the end: the mark is at `id`
    superseded,  // the end: a newer world or run has its mark there, and this world is over
  };

  // `version`: that which the key has as far as is known, of the last commit of this world.
  explicit MarkWriter(CommitId id, std::optional<std::uint64_t> version = {})
      : id_(id), version_(version), next_(version ? Next::write : Next::read) {}

  Next next() const { return next_; }
  CommitId id() const { return id_; }
  // The key's version, as far as is known; 0: there is no key.
  std::uint64_t version() const { return version_.value_or(0); }

  // The result of a read: the mark, {} without one, and its version.
  void found(CommitId mark, std::uint64_t version);
  // The result of a write.
  void wrote(std::uint64_t version);
  void refused() { next_ = Next::read; }  // the key has another version
  // No answer came, to either.
  void in_doubt() { next_ = Next::read; }

 private:
  CommitId id_;
  std::optional<std::uint64_t> version_;
  Next next_;
};

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
