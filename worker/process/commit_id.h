// The number of a commit, where the newest one is written down, and the steps of that. Plain
// values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/protocol/world_document.h"
#include "base/status.h"

namespace hvd::worker {

// A later run is newer, whatever the world, and in a run a later world, whatever the sequence.
// {0, 0} is no commit.
struct CommitId {
  std::uint64_t generation = 0;  // of the world that agreed
  std::uint64_t sequence = 0;    // of its commits, from 1 on; 0: the state that it began with
  std::uint64_t run = 0;         // calls of elastic::run that had finished on all ranks before

  bool none() const { return generation == 0; }
  friend bool operator==(const CommitId&, const CommitId&) = default;
  friend auto operator<=>(const CommitId& a, const CommitId& b) {
    return std::tie(a.run, a.generation, a.sequence) <=> std::tie(b.run, b.generation, b.sequence);
  }
};

// "3.17", in the program's second run "3.17.1"; the form of the high-water mark (kHighWaterKey).
std::string to_text(const CommitId& id);
Result<CommitId> commit_id_from_text(std::string_view text);

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

}  // namespace hvd::worker
