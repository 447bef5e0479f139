// The number of a commit, and the high-water mark of a job, which is the newest of them.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "base/status.h"

namespace hvd {

// Where the high-water mark stands, which is the newest commit: "GENERATION.SEQUENCE", sequences
// from 1 on. Rank 0 writes it (worker/process/high_water.h), with a third number if calls of
// elastic::run have returned on all of them: "4.0.1" after the first. The driver writes it when all
// of them begin again from nothing: with sequence 0, and the generation that they begin with.
inline constexpr const char* kCommitScope = "elastic";
inline constexpr const char* kHighWaterKey = "committed";

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

// "3.17", in the program's second run "3.17.1": the form of the high-water mark.
std::string to_text(const CommitId& id);
// data_loss: it is not of that form.
Result<CommitId> commit_id_from_text(std::string_view text);

}  // namespace hvd
