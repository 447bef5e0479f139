// The suspension of an elastic job: all of its workers leave at the same commit, and the state is
// kept, so that the job is taken up later. Pure.
//
// A value for one thread. `now` is the job's own time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

class Suspension {
 public:
  // For a state that is being written, without a byte more on the disk.
  static constexpr std::chrono::seconds kSaveTimeout{600};

  // What a signal to hvdrun is answered with.
  enum class Answer { suspend, stop, nothing };
  // `can_commit`: the workers can come to a commit. A second signal stops the job at once; the
  // first one of a suspension that began by itself does not.
  Answer ask(bool can_commit);

  // `signal_number`: of why, for words.
  void begin(int signal_number) { signal_ = signal_number; }
  // The workers come to a commit, or say that they write the state, until then.
  void await_commit(TimePoint until);
  // True: it is the first word of this commit's state.
  bool on_saving(const event::Saving& saving, bool may_wait, TimePoint now);
  // Every member has left at the commit, or is about to.
  void finish();
  void stop_waiting() { deadline_ = kNever; }
  void extend_deadline(Duration time) {
    if (deadline_ != kNever) deadline_ += time;
  }

  bool has_begun() const { return signal_ != 0; }
  bool is_finished() const { return is_finished_; }
  bool is_under_way() const { return has_begun() && !is_finished_; }
  bool is_saving() const { return saving_.has_value(); }
  // The state file of this suspension is there.
  bool is_in_place() const { return is_in_place_; }
  int signal() const { return signal_; }
  TimePoint deadline() const { return deadline_; }
  // "312 MiB of 900 MiB of the state", while it is saving.
  std::string saving_text() const;

 private:
  int signal_ = 0;  // 0: it has not begun
  bool was_asked_ = false;
  bool is_finished_ = false;
  std::optional<event::Saving> saving_;  // of the world in force
  bool is_in_place_ = false;
  TimePoint deadline_ = kNever;
};

}  // namespace hvd::driver
