// What the workers of elastic_steps wrote into their books, and those of examples/train into their
// ledgers: read while they run, so that a test can
// wait for what it waits for, and judged at the end. All of a bed's hosts have one clock, so times
// of different books compare. For one thread.
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
struct StepsBook {
  struct World {
    std::int64_t us = 0;
    std::int64_t id = 0;  // grows with the generations
    int rank = 0;
    int size = 0;
    std::int64_t step = 0;  // from which it goes on
    std::string weights;    // a digest of them there; empty: the book does not say
  };
  struct Commit {
    std::int64_t us = 0;
    std::int64_t step = 0;
    std::int64_t world = 0;
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

// What must hold of a whole job beside what always must.
struct StepsRules {
  std::int64_t samples = 4096;  // of an epoch
  bool ends_well = true;        // all members of the last world are done, at the same step
  bool may_go_back = false;     // to a checkpoint
  bool may_end_in_error = false;
  std::string may_end_with = {};  // an error with these words is expected; empty: none is
};

class StepsBooks {
 public:
  explicit StepsBooks(std::vector<std::filesystem::path> directories)
      : directories_(std::move(directories)) {}

  // With what has been written since.
  const std::vector<StepsBook>& read();
  const std::vector<StepsBook>& books() const { return books_; }

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
  std::vector<const StepsBook*> members() const;
  std::int64_t newest_world() const;

  // Steps that a worker did again in a later world: what rolling back means.
  int steps_done_again() const;
  int workers_that_left() const;
  // Empty if the history is right: nobody went on from before what anybody saw committed, no step
  // was committed in two worlds, all members of a world began it with the same weights, each
  // epoch's samples were drawn exactly once in the steps that count, but for padding. Else what is
  // wrong.
  std::string trouble(const StepsRules& rules = {});
  // For a person: who entered which world when.
  std::string summary() const;

 private:
  struct File {
    std::size_t book = 0;
    std::uintmax_t taken = 0;
  };

  void take(const std::string& name, StepsBook& book, const std::string& line);
  void check_worlds(const StepsRules& rules, std::string& trouble) const;
  void check_ledger(const StepsRules& rules, std::string& trouble) const;
  void check_end(std::string& trouble) const;

  std::vector<std::filesystem::path> directories_;
  std::map<std::filesystem::path, File> files_;
  std::vector<StepsBook> books_;
};

}  // namespace hvd::test
