// One run of a state, turn by turn: what elastic::run() does between two calls of the program's
// function, for those that call it themselves.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include <hvd/elastic.h>

#include "base/protocol/world_document.h"
#include "worker/elastic/agreement.h"
#include "worker/elastic/leave_watch.h"

namespace hvd::elastic::detail {

class StateImpl;

enum class Turn {
  call,  // the program's function is to be called
  done,  // it has returned, on all ranks; perhaps before this one came
  left,  // the job goes on without this worker
};

// For one thread at a time. There is one run in a process.
class Run {
 public:
  // Throws InvalidArgumentError if the state has a run already. The state must live as long.
  explicit Run(State& state);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Blocks until there is a world with this rank in it and the state is in place, or until the run
  // is over. `thrown` is what the function has thrown since the last turn; null: it has returned,
  // or has not been called yet. A CollectiveError in a world that stands is the program's own, and
  // ends that world for all ranks. Throws it if the run cannot mend it, InitError, and what the
  // state throws; then the run is over, too.
  Turn next(std::exception_ptr thrown);

 private:
  // Another generation is to come, or nothing.
  std::optional<Turn> after_failure(const std::exception_ptr& thrown, bool finishing);
  // The program gives up a world that stands. False: too often since the last commit.
  bool ends_world(const char* why);
  // A world that has failed is formed again. False: what its members send was altered too often
  // since the last commit.
  bool may_form_again(const char* why);
  Turn begin_turn();
  // The function has returned on all ranks that were in this run.
  Turn after_the_end(worker::RunStatus status);

  StateImpl& impl_;
  std::optional<worker::LeaveWatch> leave_watch_;
  bool called_ = false;  // the program's function, at least once
  bool again_ = false;   // the next turn is in a later generation
  bool rolls_back_ = false;
  // Counts what happens again and again at the same point.
  template <typename Point>
  class Repetitions {
   public:
    // How often it has happened at this point, with this time.
    int count(const Point& at) {
      if (std::exchange(at_, at) != at) times_ = 0;
      return ++times_;
    }

   private:
    Point at_{};
    int times_ = 0;
  };
  // The program gives up a world: since this commit.
  Repetitions<CommitId> given_up_;
  // What members send is altered: in this generation, since this commit.
  Repetitions<std::pair<std::uint64_t, CommitId>> altered_;
};

// Ends the process as a worker does that is not needed any more.
[[noreturn]] void exit_of_worker_that_left();

}  // namespace hvd::elastic::detail
