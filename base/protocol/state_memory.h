// The committed state of a job in memory that the agent of the host holds: a file in memory that
// one worker after the other is given (worker_link::kStateMemoryVariable). So the state outlives
// the worker that has kept it, and the next one begins with it, also if all workers of the job were
// killed at once.
//
// The file has a page with two entries, and behind it two regions for the bytes of two states
// (worker/elastic/store.h). Only the pages that were written are there. An entry is void while its
// region changes, and is written when the region is whole: a worker that is killed at any moment
// leaves at least the entry that it had before. A worker may write anything there: what an agent
// reads takes no memory, and what the next worker reads no more than the file has.
//
// A value for one thread, in one process at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/descriptors.h"
#include "base/protocol/commit_id.h"
#include "base/status.h"

namespace hvd {

// A part of a file in memory, in which a state can lie.
struct FileRegion {
  int file = -1;  // none
  std::uint64_t begin = 0;
};

class StateMemory {
 public:
  struct Entry {
    CommitId id;
    std::uint64_t shape = 0;  // the same of programs that have added the same
    std::uint64_t step = 0;   // with a ledger: the number of the commit in it
    std::vector<std::uint64_t> sizes;
  };
  static constexpr std::size_t kEntries = 2;

  static Result<StateMemory> make();
  // failed_precondition: it is something else, or files of this process may not be large enough
  // (ulimit -f).
  static Result<StateMemory> open(UniqueFd file);

  // As the entries say, whatever the regions hold; {} if both are void or damaged.
  CommitId newest() const;
  // Nothing: it is void, damaged, or another version of hvd has written it.
  std::optional<Entry> read(std::size_t entry) const;
  // The region of that entry is whole.
  Status write(std::size_t entry, const Entry& what) const;
  // The region of that entry is going to change.
  Status make_void(std::size_t entry) const;
  FileRegion region(std::size_t entry) const;
  UniqueFd duplicate() const;
  UniqueFd release() { return std::move(file_); }

 private:
  explicit StateMemory(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;
};

}  // namespace hvd
