// The ledger of a job (HVD_LEDGER): which state each of its commits had, and which samples led to
// it, a line of JSON for each (docs/shards.md), for `hvdrun compare`.
//
// The leader of a commit, rank 0, writes its line once the commit is one. It may be lost in
// between: then a rank that holds the state writes the line when the next world begins. A leader
// that was stopped for long may come then, too. So a writer looks under a lock whether the line is
// there, and a step stands once.
//
// Where a file is kept each step has the samples of all ranks, since ShardReducer exchanges them.
//
// Safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd::worker {

// By shard.
using ShardSamples = std::map<int, std::vector<std::int64_t>>;

// A commit as its line says it.
struct LedgerStep {
  std::uint64_t number = 0;                                  // of the job's commits, from 1 on
  std::vector<std::pair<std::string, std::string>> digests;  // by the names of the state's parts
  ShardSamples samples;

  std::string line() const;
};

class Ledger {
 public:
  explicit Ledger(std::string file) : file_(std::move(file)) {}
  // That of this process; null if none is kept.
  static Ledger* of_process();

  // The samples of a step that is not committed yet.
  void add_samples(const ShardSamples& samples);
  // All since the last time.
  ShardSamples take_samples();

  // A job begins: what is in the file is that of another one. Errors name the file.
  Status begin();
  // The number of the last step in it; 0 without one.
  Result<std::uint64_t> last_step();
  // A job goes on from this step: the lines of later ones are dropped. The number of the last one
  // that is left.
  Result<std::uint64_t> go_back_to(std::uint64_t step);
  // Unless a step with this number, or a later one, is there.
  Status write(const LedgerStep& step);

 private:
  Status open();
  // Reads the end of the file again if another process has written there.
  Status look();
  // The file ends there from now on; `last` is the number of its last line.
  Status cut(off_t end, std::uint64_t last);
  Status append(const LedgerStep& step);

  const std::string file_;
  std::mutex mutex_;
  ShardSamples samples_;
  UniqueFd fd_;
  off_t end_ = -1;  // as it was when this process looked, or wrote
  std::uint64_t last_ = 0;
};

}  // namespace hvd::worker
