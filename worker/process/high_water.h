// The newest commit that a rank may have seen, stored where it outlives all workers, and the steps
// of writing it down. For rank 0 of a world, one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/protocol/commit_id.h"
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

// The agent, as the mark sees it: it knows whether there is an hvdrun, and keeps the newest mark
// for a successor. Safe from any thread.
class MarkKeeper {
 public:
  virtual ~MarkKeeper() = default;
  virtual bool driver_is_gone() const = 0;
  // False: there is none until the deadline.
  virtual bool wait_for_driver(TimePoint deadline) const = 0;
  // The newest mark that this process knows of. The keeper has it as soon as there is no hvdrun,
  // and if there is none now when this returns.
  virtual Status keep_mark(const CommitId& id) = 0;
};

// In the rendezvous service, as MarkWriter says. The service lives in hvdrun, and a whole world
// needs none: while hvdrun is gone a commit holds as soon as the agent has its mark. No newer world
// can have committed meanwhile, since only an hvdrun brings members of one together, and the agent
// hands the mark to the successor before that publishes a world. Only the agent's word counts: a
// service that does not answer may belong to an hvdrun that is slow or frozen.
class RendezvousHighWater final : public HighWater {
 public:
  // `keeper` must outlive it.
  RendezvousHighWater(std::shared_ptr<rendezvous::Client> client, MarkKeeper& keeper)
      : client_(std::move(client)), keeper_(keeper) {}
  // Blocks while hvdrun is gone, without end: only a successor has heard of all marks, and who
  // reads the mark is about to form a world or to end, for which an hvdrun is needed anyway.
  // Cancelling the client ends it.
  Result<CommitId> read() override;
  Status write(const CommitId& id) override;

 private:
  // These end with unavailable as soon as hvdrun is gone.
  Result<CommitId> read_from_driver();
  Status write_to_driver(const CommitId& id);
  rendezvous::Client::GivesUp when_driver_goes();

  std::shared_ptr<rendezvous::Client> client_;
  MarkKeeper& keeper_;
  bool driver_went_ = false;              // during the call in progress
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
