// How rank 0 raises the high-water mark at a commit. Another rank 0 may do the same at the same
// time, one of an older world that does not know yet that it is over; and of a write whose answer
// is lost nobody knows whether it was done. So a write is made only on top of what was read, and
// what is in doubt is read again. Pure, a value of one commit, for one thread.
//
//     MarkWriter mark(id, known_version);
//     while (mark.next() == read or write) do it, and tell it what came of it
//
// Only when it ends with `written` may anybody be told that the commit is one.
#pragma once

#include <cstdint>
#include <optional>

#include "worker/process/commit_id.h"

namespace hvd::worker {

class MarkWriter {
 public:
  enum class Next {
    read,        // the key, with its version
    write,       // `id`, if the key still has version()
    written,     // the end: the mark is at `id`
    superseded,  // the end: a newer world has committed, and this one is over
  };

  // `version`: that which the key has as far as is known, of the last commit of this world.
  explicit MarkWriter(CommitId id, std::optional<std::uint64_t> version = {})
      : id_(id), version_(version), next_(version ? Next::write : Next::read) {}

  Next next() const { return next_; }
  CommitId id() const { return id_; }
  // Of the key, as far as is known; 0: there is none.
  std::uint64_t version() const { return version_.value_or(0); }

  // What came of a read: the mark, {} if there is none, and its version.
  void found(CommitId mark, std::uint64_t version);
  // What came of a write.
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
