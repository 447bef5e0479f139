// The workers of a job, in the order in which they were planned or launched: the states of their
// processes, what each is to the world, and their deadlines. Pure.
//
// A value for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/protocol/commit_id.h"
#include "base/protocol/world_document.h"
#include "driver/job/job_io.h"
#include "driver/job/job_states.h"

namespace hvd::driver {

// Whether a worker is to leave at the next commit, because somebody has asked for it.
enum class Leaving : std::uint8_t {
  no,
  asked,     // it stays after all if there is room for it again
  for_good,  // whatever discovery says
};

// Whether the other members wait for a worker.
enum class Pace : std::uint8_t {
  keeps_up,
  slow,
  gives_way,  // and leaves when another one can take its place (job_slow.cpp)
};

struct JobWorker {
  WorldMember member;
  HostIndex host = 0;
  WorkerState state = WorkerState::planned;         // changed by Workers::move() alone
  MemberStatus membership = MemberStatus::joining;  // likewise
  int pid = 0;
  bool joined = false;  // it has called hvd::init, now or before

  // Reports that came before the agent said that the worker runs: the worker's own words and those
  // of its agent arrive on two ways. All are taken up with the start.
  std::vector<WorkerState> said_early;
  bool ready_early = false;
  std::optional<std::string> left_early;

  Leaving leaving = Leaving::no;
  std::string why_it_leaves;  // unless `leaving` is no
  Pace pace = Pace::keeps_up;
  bool may_have_left = false;  // a world without it was proposed
  TimePoint left_at = kNever;  // when it ended as it had been asked to
  // It has the state for sure: it was there from the beginning, or at a commit that was told of.
  bool has_state = false;
  CommitId kept;  // by its agent: what it began with, or what it has left

  std::string how;      // how it was lost: "was killed by SIGKILL (signal 9)"
  int exit_code = 0;    // of the job, if that was why it ended
  bool killed = false;  // its agent was told to kill it

  TimePoint launch_by = kNever;
  TimePoint leave_by = kNever;
  TimePoint deadline = kNever;  // the next of these, or the time to exit of one that is removed

  bool is_to_leave() const { return leaving != Leaving::no; }
  // It is of the world in force and has not ended.
  bool is_live_member() const { return membership == MemberStatus::member && !has_ended(state); }
};

class Workers {
 public:
  // Incarnations count from 1.
  static std::size_t index(Incarnation incarnation) {
    return static_cast<std::size_t>(incarnation - 1);
  }
  // size() if there is no such worker.
  std::size_t index_of(Incarnation incarnation) const;

  // Gives it its incarnation.
  std::size_t add(JobWorker worker);
  // The only ways to another state. They end the process if a table does not allow the change.
  void move(std::size_t worker, WorkerState to);
  void move(std::size_t worker, MemberStatus to);

  std::size_t size() const { return all_.size(); }
  const std::vector<JobWorker>& all() const { return all_; }
  JobWorker& operator[](std::size_t worker) { return all_[worker]; }
  const JobWorker& operator[](std::size_t worker) const { return all_[worker]; }
  JobWorker& of(Incarnation incarnation) { return all_[index(incarnation)]; }
  const JobWorker& of(Incarnation incarnation) const { return all_[index(incarnation)]; }

  // The workers that have not ended.
  const std::set<std::size_t>& live() const { return live_; }
  // Members that run and have not called hvd::init.
  const std::set<std::size_t>& absent() const { return absent_; }
  // How many were not started yet and still may be.
  std::size_t unstarted() const { return unstarted_; }

  void set_deadline(std::size_t worker, TimePoint deadline);
  // For a worker that is not removed.
  void renew_deadline(std::size_t worker);
  TimePoint next_deadline() const;
  // So much time counts for none of the waits.
  void extend_deadlines(Duration time);
  // A worker whose deadline is over; the deadline is taken away.
  std::optional<std::size_t> take_overdue(TimePoint now);

 private:
  void note_presence(std::size_t worker);

  std::vector<JobWorker> all_;
  std::set<std::size_t> live_;
  std::set<std::size_t> absent_;
  std::set<std::pair<TimePoint, std::size_t>> deadlines_;
  std::size_t unstarted_ = 0;
};

}  // namespace hvd::driver
