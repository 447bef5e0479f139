// The decisions that the members of an elastic world agree about, as pure functions of the records
// that each of them sent: at a commit, whether it is one; after a change of the world, from which
// state all go on.
//
// A commit is an agreement in two steps. Each rank keeps its state under the commit's id and says
// that it is prepared; when all are, rank 0 writes the high-water mark to the rendezvous and then
// answers. A rank acts only on that answer. So every member of that world has kept each
// state that a rank saw as committed: after a loss, the newest state that a survivor keeps is at
// least as new.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/world_document.h"
#include "base/status.h"

namespace hvd::worker {

// ---- a commit ----

struct Prepared {
  CommitId id;
  std::optional<std::uint64_t> checksum;  // of the state, when it is time to compare it
};

// What each rank sends at a commit, or when it looks whether there is to be one.
struct CommitRecord {
  bool commits = false;
  bool wants_change = false;  // rank 0
  Prepared prepared;

  std::string encode() const;  // of the same length whatever it says
  static Result<CommitRecord> decode(std::string_view bytes);
};

// By rank. invalid_argument names the ranks that are at another commit than the others;
// data_loss those whose state differs from the others', of which there may be two parties.
Status agree(const std::vector<Prepared>& prepared);

// ---- after a change ----

// Where a ledger is kept (worker/process/ledger.h): the numbers that it gives to commits.
struct LedgerNumbers {
  std::uint64_t held = 0;     // to what this rank holds
  std::uint64_t written = 0;  // to the last one in rank 0's file
};

struct Vote {
  CommitId holds;                  // the newest state that it has whole
  std::uint64_t bytes = 0;         // of that state, as it would be sent
  bool can_load = false;           // its program can load a checkpoint of its own
  std::uint64_t sizes_digest = 0;  // the same on ranks whose states can be sent part by part
  std::uint64_t run = 0;           // of the program: how many it has finished before
  CommitId marked;                 // the newest commit that it has read to be one; rank 0's counts
  std::uint64_t shape = 0;         // the same on ranks that have added the same things
  LedgerNumbers ledger;

  std::string encode() const;  // of the same length whatever it says
  static Result<Vote> decode(std::string_view bytes);
};

struct Resume {
  enum class From {
    state,      // of `holders`
    beginning,  // nothing was ever committed: all begin with what rank 0's program made
    loader,     // what was committed is lost: rank 0's program loads, and all go on from there
  };
  From from = From::state;
  CommitId id;              // what all hold then
  std::uint64_t bytes = 0;  // From::state: of the first holder's state, which is received
  // With a ledger: the number of this commit in it. From::beginning: rank 0 says it later.
  std::uint64_t step = 0;
  std::vector<int> holders;    // ranks, ascending; of `beginning` and `loader`, rank 0
  std::vector<int> senders;    // of them the first, and all whose states have the same sizes
  std::vector<int> receivers;  // all others
};

// The fate of the run of the program that a rank is in.
enum class RunStatus {
  goes_on,      // all ranks are in it
  waits,        // others are in an earlier one, and come
  is_finished,  // on all ranks that were in it; the program goes on with a later one
  is_over,      // likewise, and none of these ranks has gone on from there
};

// `high_water`: as below.
RunStatus run_status(const std::vector<Vote>& votes, CommitId high_water, int rank);

// `votes` by rank, of the world `generation`, all of the same run; `high_water`: the newest commit
// that a rank may have seen; with sequence 0, and of an earlier run, what was committed before does
// not count. data_loss if every holder of it is gone and rank 0 cannot load.
Result<Resume> decide_resume(const std::vector<Vote>& votes, CommitId high_water,
                             std::uint64_t generation);

}  // namespace hvd::worker
