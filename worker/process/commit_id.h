// The number of a commit, and where the newest one is written down. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd::worker {

// A later world is newer, whatever the sequence; {0, 0} is no commit.
struct CommitId {
  std::uint64_t generation = 0;  // of the world that agreed
  std::uint64_t sequence = 0;    // of its commits, from 1 on; 0: the state that it began with

  bool none() const { return generation == 0; }
  // clang-tidy 14 sees a 0 in here.
  friend auto operator<=>(const CommitId&,
                          const CommitId&) = default;  // NOLINT(modernize-use-nullptr)
};

// "3.17"; the form of the high-water mark.
std::string to_text(const CommitId& id);
Result<CommitId> commit_id_from_text(std::string_view text);

// Where the high-water mark stands in the rendezvous.
inline constexpr const char* kCommitScope = "elastic";
inline constexpr const char* kHighWaterKey = "committed";

}  // namespace hvd::worker
