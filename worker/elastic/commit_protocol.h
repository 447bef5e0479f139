// The agreements about the state of one world's members: at a commit, and when they begin. Every
// rank calls the same ones in the same order. Blocking, for one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/elastic/agreement.h"
#include "worker/elastic/state_channel.h"
#include "worker/elastic/store.h"
#include "worker/process/high_water.h"

namespace hvd::worker {

// Bytes of the state that are on their way at a time.
inline constexpr std::uint64_t kTransferChunk = std::uint64_t{16} << 20;

// How far a transfer is, on a rank that receives.
struct TransferWatch {
  // So many bytes of the state are here already, and do not travel. Once, before the first chunk.
  std::function<void(std::uint64_t)> on_found = {};
  // So many of the others are here, after each chunk; they are counted anew if the holders' states
  // differ, and the first one has to send all of its own.
  std::function<void(std::uint64_t)> on_received = {};
};

// The world that rank 0 wants to go over to: the document of a proposed world, or nothing.
using Proposal = std::function<std::string()>;

class CommitProtocol {
 public:
  // `run`: how many runs of the program this rank has finished. The high-water mark is rank 0's
  // business. World and mark must outlive it.
  CommitProtocol(runtime::World& world, std::uint64_t generation, std::uint64_t run,
                 HighWater& high_water, std::uint64_t chunk = kTransferChunk)
      : channel_(world),
        generation_(generation),
        run_(run),
        high_water_(high_water),
        chunk_(chunk) {}

  StateChannel& channel() { return channel_; }
  std::uint64_t generation() const { return generation_; }
  std::uint64_t run() const { return run_; }

  // All are prepared for this commit, and it is one. `next`: the world that all go over to now;
  // empty: they stay. Rank 0 calls `on_marked` as soon as it is written down, also if this fails
  // after it.
  runtime::Failure commit(const Prepared& prepared, const Proposal& proposal, std::string& next,
                          const std::function<void()>& on_marked = {});
  // Without a commit: whether rank 0 wants to go over to another world.
  runtime::Failure look(const Proposal& proposal, bool& wants);
  // From which state all go on, if the run of this rank does. It waits for ranks that are in an
  // earlier one.
  // `steps`: of this rank's vote, with a ledger.
  runtime::Failure vote(Store& store, bool can_load, RunStatus& status, Resume& resume,
                        const LedgerNumbers& steps = {});
  // The ranks without the state receive that of the first holder, whole and checked, and take it
  // over. Blocks that all of them have in their rooms already do not travel (state_blocks.h).
  runtime::Failure transfer(Store& store, const Resume& resume, bool& received,
                            const TransferWatch& watch = {});
  // The function has returned on all ranks, and it is written down that this run has finished, so
  // that a newcomer does not begin it again. Rank 0 calls `on_marked` as soon as that is written,
  // also if this fails after it.
  runtime::Failure finish(const std::function<void()>& on_marked);

 private:
  runtime::Failure meet(const CommitRecord& own, std::vector<CommitRecord>& all);
  runtime::Failure read_mark(CommitId& mark);
  runtime::Failure gather_votes(Store& store, bool can_load, const LedgerNumbers& steps,
                                std::vector<Vote>& votes);
  // An error that all ranks have found in the same way.
  runtime::Failure common(const Status& error);

  StateChannel channel_;
  std::uint64_t generation_;
  std::uint64_t run_;
  HighWater& high_water_;
  std::uint64_t chunk_;
};

}  // namespace hvd::worker
