// The states of a job, of its hosts and of its workers, and for each the only states that may
// follow. Pure; driver/job/job.cpp checks every change against these tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hvd::driver {

enum class JobState : std::uint8_t {
  planned,    // nothing is started
  preparing,  // agents are on their way; workers start when there are enough hosts
  choosing,   // all agents of a list are ready: addresses by which they reach each other are sought
  starting,   // the workers of a list are on their way
  running,    // a world is in force
  waiting,    // too few are left for a world; replacements are on their way
  ending,     // a worker has declared that the work is done
  stopping,   // failed or to stop: workers were asked to end and have their grace
  killing,    // the grace is over, or somebody could not wait: workers are being killed
  closing,    // no worker is left; agents clean up and leave
  finished,   // no process of the job is left
};

enum class HostState : std::uint8_t {
  planned,   // its agent is not started
  starting,  // its agent is on its way there and has not said that it is ready
  ready,     // its agent answers
  closing,   // its agent was told to shut down
  dropping,  // its agent was given up and is being killed
  gone,      // no agent is there; what it had started ended with it
};
inline constexpr std::size_t kHostStates = 6;

enum class WorkerState : std::uint8_t {
  planned,        // not started
  launching,      // its agent was asked to start it
  running,        // it has a pid
  initialised,    // it called hvd::init
  done,           // it said that its work is done
  exited,         // it ended, and its agent said how
  never_started,  // its agent could not start it, or was not asked to
  lost,           // it ended with its agent; nobody knows how
};

// The role of a worker in the world, beside the state of its process.
enum class MemberStatus : std::uint8_t {
  joining,             // it was started, and has not said that it is ready
  standby,             // it waits for a world that has it
  member,              // of the world in force
  removed,             // of no world any more: it ends, or is made to
  exited_before_init,  // it ended with 0 and never called hvd::init, as far as all others have not
  completed,           // it ended after it had declared that its work is done
};

std::string_view name_of(JobState state);
std::string_view name_of(HostState state);
std::string_view name_of(WorkerState state);
std::string_view name_of(MemberStatus status);

std::span<const JobState> successors(JobState state);
std::span<const HostState> successors(HostState state);
std::span<const WorkerState> successors(WorkerState state);
std::span<const MemberStatus> successors(MemberStatus status);

template <typename State>
bool may_follow(State from, State to) {
  const auto next = successors(from);
  return std::find(next.begin(), next.end(), to) != next.end();
}

// A change that the tables do not know is a bug of ours: ends the process. Going on could leave
// processes behind; ending does not, since the agents kill everything when their link closes.
[[noreturn]] void end_with_bug(std::string_view from, std::string_view to);
template <typename State>
void check_move(State from, State to) {
  if (!may_follow(from, to)) end_with_bug(name_of(from), name_of(to));
}

// No process of this worker is left.
constexpr bool has_ended(WorkerState state) { return state >= WorkerState::exited; }
// It was not started yet and still may be.
constexpr bool is_unstarted(WorkerState state) {
  return state == WorkerState::planned || state == WorkerState::launching;
}

}  // namespace hvd::driver
