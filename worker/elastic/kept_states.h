// Which states of the program a worker has whole, and of which commits they are: the books that a
// vote is made from; the bytes lie elsewhere. Pure, a value for one thread.
//
// With copies there are two buffers: the newest state stands in one, and the other is spare. A
// state that is copied at a commit or received after a change is written to the spare one, which
// becomes the newest when it is whole. So whatever is cut in the middle, the state before it is
// still there.
//
// Without copies (CommitMode::mark) the program's own variables are the only state. They change
// only inside mutate(), after the last collective of a step, and each mutate() is one step further:
// the sequence counts them, so that the same id means the same state on all ranks. A rank
// that is interrupted inside mutate() holds no complete state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "worker/elastic/agreement.h"

namespace hvd::worker {

class KeptStates {
 public:
  // A world is entered, in this run of the program; what is kept in it is counted from 1 on.
  void entered(std::uint64_t generation, std::uint64_t run);
  // Under which id the next state is kept in this world.
  CommitId next() const { return {generation_, sequence_ + 1, run_}; }

  // The newest state that is whole, for the vote and for Prepared; {} without one.
  CommitId newest() const { return newest_ ? ids_[*newest_] : CommitId(); }

  // ---- with copies ----
  // The buffer of the newest state, if there is one.
  std::optional<std::size_t> buffer() const { return newest_; }
  // The buffer to write to. From now on it holds nothing whole.
  std::size_t begin_to_keep();
  // That buffer now holds this state.
  void kept(CommitId id);

  // ---- without ----
  void mutate_begins() { newest_.reset(); }
  void mutate_ends() { kept(next()); }

 private:
  std::uint64_t generation_ = 0;
  std::uint64_t run_ = 0;
  std::uint64_t sequence_ = 0;
  std::array<CommitId, 2> ids_;
  std::optional<std::size_t> newest_;
};

}  // namespace hvd::worker
