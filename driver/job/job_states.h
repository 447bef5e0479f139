// The states of a job, of its hosts and of its workers, and for each the only states that may
// follow. Pure; driver/job/job.cpp checks every change against these tables.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace hvd::driver {

enum class JobState : std::uint8_t {
  planned,    // nothing is started
  preparing,  // agents are on their way
  choosing,   // all agents are ready: addresses by which all hosts reach each other are looked for
  starting,   // workers are on their way
  running,    // every worker runs or has ended well
  stopping,   // the job has failed or is to stop: workers were asked to end and have their grace
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

// Of an elastic job, driver/job/elastic_job.h.
enum class ElasticState : std::uint8_t {
  planned,    // nothing is started
  gathering,  // hosts are made ready for the first world
  training,   // a world is in force
  waiting,    // too few are left for a world; replacements are on their way
  ending,     // a worker has declared that the work is done
  stopping,   // failed or to stop: workers were asked to end and have their grace
  killing,    // workers are being killed
  closing,    // no worker is left; agents clean up and leave
  finished,   // no process of the job is left
};

// What a worker of an elastic job is to the world.
enum class Standing : std::uint8_t {
  coming,  // it was started, and has not said that it is ready
  warm,    // it waits for a world that has it
  member,  // of the world in force
  out,     // of no world any more: it ends, or is made to
};

std::string_view name_of(ElasticState state);
std::string_view name_of(Standing standing);
std::string_view name_of(JobState state);
std::string_view name_of(HostState state);
std::string_view name_of(WorkerState state);

std::span<const JobState> successors(JobState state);
std::span<const HostState> successors(HostState state);
std::span<const WorkerState> successors(WorkerState state);

std::span<const ElasticState> successors(ElasticState state);
std::span<const Standing> successors(Standing standing);

bool may_follow(ElasticState from, ElasticState to);
bool may_follow(Standing from, Standing to);
bool may_follow(JobState from, JobState to);
bool may_follow(HostState from, HostState to);
bool may_follow(WorkerState from, WorkerState to);

// A change that the tables do not know is a bug of ours: ends the process. Going on could leave
// processes behind; ending does not, since the agents kill everything when their link closes.
[[noreturn]] void end_with_bug(std::string_view from, std::string_view to);
template <typename State>
void check_move(State from, State to) {
  if (!may_follow(from, to)) end_with_bug(name_of(from), name_of(to));
}

// True of the last three: no process of this worker's own is left.
bool has_ended(WorkerState state);

}  // namespace hvd::driver
