// The step logs of elastic_steps' workers and the ledgers of examples/train's: read while they run,
// so that a test can wait for events, and checked at the end. All hosts of a bed have one clock, so
// times of different logs compare. For one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/support/process.h"

namespace hvd::test {

// Of one process. Times are microseconds of the monotonic clock.
struct StepLog {
  struct World {
    std::int64_t us = 0;
    std::int64_t id = 0;  // grows with the generations
    int rank = 0;
    int size = 0;
    std::int64_t step = 0;  // from which it goes on
    std::string weights;    // a digest of them there; empty: the log has none
  };
  struct Commit {
    std::int64_t us = 0;
    std::int64_t step = 0;
    std::int64_t world = 0;
    std::string weights;  // a digest; empty: the log has none
  };
  struct Draw {
    std::int64_t step = 0;
    std::int64_t world = 0;
    std::int64_t epoch = 0;
    std::vector<std::int32_t> samples;
  };

  std::string worker;  // "h1#0"
  pid_t pid = 0;       // as its host counts
  std::int64_t started = 0;
  std::int64_t initialised = 0;  // 0: not yet; the same below
  std::int64_t obeyed = 0;       // an order
  std::int64_t left = 0;
  std::int64_t done = 0;
  std::int64_t done_step = 0;
  std::string weights;  // at the end
  std::string error;
  std::vector<World> worlds;
  std::vector<Commit> commits;
  std::vector<Draw> draws;
};

// Rules for one job beside those that always hold.
struct StepLogRules {
  std::int64_t samples = 4096;  // of an epoch
  bool ends_well = true;        // all members of the last world are done, at the same step
  bool may_go_back = false;     // to a checkpoint
  bool may_end_in_error = false;
  std::string may_end_with = {};  // an expected part of an error; empty: no error may occur
  // The digests with which a job without faults has committed the same steps; empty: any.
  std::map<std::int64_t, std::string> weights = {};
};

class StepLogs {
 public:
  explicit StepLogs(std::vector<std::filesystem::path> directories)
      : directories_(std::move(directories)) {}

  // With what has been written since.
  const std::vector<StepLog>& read();
  const std::vector<StepLog>& step_logs() const { return step_logs_; }

  // Reads until it holds; false at the limit.
  bool wait(const std::function<bool()>& condition,
            std::chrono::milliseconds limit = std::chrono::seconds(60));
  // Until some worker has committed it.
  bool wait_for_step(std::int64_t step);
  bool wait_for_steps_more(std::int64_t steps) { return wait_for_step(newest_step() + steps); }
  // Until a world of this size, newer than `after`, has committed a step on all its ranks. Its id;
  // 0 at the limit.
  std::int64_t wait_for_world(int size, std::int64_t after = 0);

  std::int64_t newest_step() const;
  // The members of the newest world by rank; empty: none has begun, or not on all ranks.
  std::vector<const StepLog*> members() const;
  std::int64_t newest_world() const;

  // Steps that a worker did again in a later world: what rolling back means.
  int steps_done_again() const;
  int workers_that_left() const;
  // Empty if the history is right; otherwise its errors. No worker went on from a step before one
  // that any worker saw committed, no step was committed in two worlds, all members of a world
  // began it with the same weights and committed each step with the same, and each epoch's samples
  // were drawn exactly once in the steps that count, except for padding.
  std::string errors(const StepLogRules& rules = {});
  // The digest with which each step was committed.
  std::map<std::int64_t, std::string> weights_of_steps() const;
  // For a person: the members of each world, and when they entered it.
  std::string summary() const;

 private:
  struct File {
    std::size_t step_log = 0;
    std::uintmax_t taken = 0;
  };

  void take(const std::string& name, StepLog& step_log, const std::string& line);
  void check_worlds(const StepLogRules& rules, std::string& errors) const;
  void check_ledger(const StepLogRules& rules, std::string& errors) const;
  void check_end(std::string& errors) const;

  std::vector<std::filesystem::path> directories_;
  std::map<std::filesystem::path, File> files_;
  std::vector<StepLog> step_logs_;
};

}  // namespace hvd::test
