// Every state that the simulated training ever had, as a tree: a step follows a state in a world of
// some size, and hands out samples. And what must hold of it, whatever happens: what was committed
// is on the path to everything that comes after it, all members of a world resume from one state,
// and on the path that counts every sample of an epoch was trained once, but for padding. A second
// opinion: it looks at what workers do and not at why. A value for one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <hvd/sampler.h>

#include "worker/elastic/agreement.h"

namespace hvd {

class TrainingHistory {
 public:
  static constexpr int kNothing = -1;  // no whole state

  TrainingHistory(int samples, int batch, std::uint64_t seed);

  // ---- what the program does ----
  int beginning() const { return 0; }
  int steps(int state) const { return at(state).steps; }
  // This rank's part of the step after `state` in a world of this size; returns the state after it,
  // the same for all its ranks.
  int train(int state, int rank, int size);
  // The state of the newest commit, for a loader's checkpoint.
  int committed() const { return committed_state_; }

  // ---- what the workers agree about ----
  void resumed(std::uint64_t generation, CommitId id, int state);
  // Rank 0 answers; `mark` stands in the rendezvous.
  void decided(CommitId id, int state, CommitId mark);
  void answered(CommitId id, int state);
  void mark_written(CommitId before, CommitId after);
  // The committed state is gone, and a loader begins anew.
  void loaded(std::uint64_t generation, int state);
  // All begin again from nothing.
  void void_commits();
  // It is marked that all have come to the end: a worker that comes later has nothing to train.
  void finished() { is_finished_ = true; }
  // A world begins with what its program made.
  void begun() {
    if (is_finished_) wrong("work that was finished is begun again");
  }
  CommitId newest() const { return newest_; }
  // The state of that commit is in the state file.
  void saved(CommitId id) { saved_ = id; }
  // Whether the file holds the newest commit.
  bool is_saved() const { return !saved_.none() && saved_ == newest_; }
  CommitId saved() const { return saved_; }
  int commits() const { return commits_; }

  // At the end: the samples of all that was committed.
  void check_samples();

  // Prints the events as text, line by line, which takes time.
  void tell_story() { tells_ = true; }
  bool tells() const { return tells_; }
  void tell(const std::string& line) { story_ += line + "\n"; }
  const std::string& story() const { return story_; }

  void wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  struct State {
    int parent = kNothing;
    int steps = 0;
    int size = 0;  // of the world that made the step
    Sampler sampler;
    std::vector<std::vector<std::int64_t>> samples;  // of that step, by rank
    std::vector<std::pair<int, int>> after;          // by the size of the world
  };
  struct Commit {
    CommitId id;
    int state = 0;
  };

  State& at(int state) { return states_[static_cast<std::size_t>(state)]; }
  const State& at(int state) const { return states_[static_cast<std::size_t>(state)]; }
  bool is_on_the_path(int state, int to) const;

  int samples_;
  int batch_;
  std::vector<State> states_;
  std::map<std::uint64_t, Commit> last_commit_of_;  // of each world, decided
  std::map<std::uint64_t, Commit> resume_of_;
  CommitId newest_;  // decided
  CommitId saved_;   // in the state file
  int committed_state_ = 0;
  int commits_ = 0;
  bool is_finished_ = false;
  std::string wrong_;
  bool tells_ = false;
  std::string story_;
};

}  // namespace hvd
