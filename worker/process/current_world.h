// The world that this process is in, was in last or waits for. A value without a lock: ProcessWorld
// guards it with its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <tuple>

#include "base/clock.h"
#include "runtime/control/world.h"
#include "runtime/core/failure.h"

namespace hvd::worker {

// The position of this process among the ranks of a world.
struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool homogeneous = true;
};

// The calls of one kind in one process set. Those without a name are numbered together.
struct CallSeries {
  std::string call;
  int process_set = 0;

  friend bool operator<(const CallSeries& a, const CallSeries& b) {
    return std::tie(a.process_set, a.call) < std::tie(b.process_set, b.call);
  }
};

class CurrentWorld {
 public:
  // A forked child inherits the memory of its parent, but not the threads of its world, so that it
  // starts outside, whatever phase() its parent had.
  enum class Phase {
    outside,  // before init() and after shutdown(); next: joining, inside
    joining,  // initialised, and in no world yet; next: inside, outside
    inside,   // in a world; next: between, outside
    between,  // the last world of an elastic job has ended; next: inside, outside
  };
  Phase phase() const { return phase_; }
  bool is_of_this_process() const;
  bool is_initialized() const { return phase_ != Phase::outside && is_of_this_process(); }

  // The parts that a world brings along when it is entered.
  struct Entry {
    std::shared_ptr<runtime::World> world;
    std::chrono::milliseconds shutdown_timeout{};
    bool dynamic_sets = false;
  };
  void wait_for_first();
  void enter(Entry entry);
  // Between two worlds; `why` is not ok.
  void end(runtime::Failure why);
  // Outside; `why` is the failure of the world that was left, empty if it had none.
  void leave(std::string why);

  // Null unless this process is inside.
  std::shared_ptr<runtime::World> world() const;
  // The failure that ended the last world; ok unless the phase is `between`.
  const runtime::Failure& end_reason() const { return end_reason_; }
  const std::string& last_failure() const { return last_failure_; }
  std::chrono::milliseconds shutdown_timeout() const { return shutdown_timeout_; }
  bool has_dynamic_sets() const { return dynamic_sets_; }

  // The place is known while a world is being formed, before it is entered.
  void set_place(const Place& place) { place_ = place; }
  const Place& place() const { return place_; }

  // "allreduce.noname.0", then 1, ...: from 0 again in each world.
  std::string next_name(const CallSeries& series);
  // The next such call has this name again, unless a later one has been taken meanwhile.
  void return_name(const CallSeries& series, std::string_view name);
  void restart_names() { unnamed_.clear(); }
  // The process set was removed: its number is never used again.
  void forget_names(int process_set);

  // When the wait for hvdrun's stop ends: `grace` after the first failure of a world, however many
  // calls fail with it.
  TimePoint stop_deadline(std::chrono::milliseconds grace);
  void reset_stop_deadline() { stop_deadline_ = kNever; }

  // Another rank has left this world early, which is over because of that.
  void note_departure(const runtime::World* world) { departed_from_ = world; }
  bool lost_a_rank(const runtime::World* world) const { return departed_from_ == world; }

 private:
  Phase phase_ = Phase::outside;
  pid_t owner_ = -1;
  std::shared_ptr<runtime::World> world_;
  std::chrono::milliseconds shutdown_timeout_{};
  bool dynamic_sets_ = false;
  Place place_;
  runtime::Failure end_reason_;
  std::string last_failure_;
  std::map<CallSeries, std::uint64_t> unnamed_;  // how many there were
  TimePoint stop_deadline_ = kNever;
  const runtime::World* departed_from_ = nullptr;
};

// The name of a call: the one that the program gives, or the next number in its series. The members
// of a process set match unnamed calls by their numbers, so one that is refused on this rank before
// the others were asked must not count: unless the name is kept, its number goes back.
class CallName {
 public:
  CallName(const std::string& given, CallSeries series);
  ~CallName();
  CallName(const CallName&) = delete;
  CallName& operator=(const CallName&) = delete;

  const std::string& text() const { return text_; }
  // The call is under way.
  void keep() { goes_back_ = false; }

 private:
  const CallSeries series_;
  const std::string text_;
  bool goes_back_;
};

}  // namespace hvd::worker
