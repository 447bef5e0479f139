// The events that go into the job's state machine and the actions that come out of it: plain
// values, each with a line of text for logs and golden scripts. An event about a host names it by
// its index in Job::hosts(); an incarnation in an event is what an agent claimed, and is checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/machine/capacity.h"
#include "base/protocol/world_document.h"
#include "driver/job/plan.h"
#include "driver/job/preflight.h"

namespace hvd::driver {

using HostIndex = std::size_t;
using Incarnation = std::uint64_t;
inline constexpr Incarnation kEveryWorker = 0;  // of one host, where an action allows it

namespace event {

struct Begin {};  // once, first
// A host that is being made ready has begun this step.
struct HostProgress {
  HostIndex host = 0;
  Step step = Step::resolve;
};
// Its agent answers, and found directory and program in place.
struct AgentReady {
  HostIndex host = 0;
  Capacity capacity;  // that it found there for workers
};
// The host cannot take part. Before it was ready: and no agent of ours is there (any more). As the
// answer to ChooseAddresses: its agent still is, and will be told to leave.
struct HostFailed {
  HostIndex host = 0;
  HostError error;
};
// The answer to ChooseAddresses, unless some HostFailed are: where the others reach the workers of
// each host that has any.
struct AddressesChosen {
  std::vector<std::string> addresses;
};
// The agent has just proved that it lives.
struct Heard {
  HostIndex host = 0;
};
// This process is behind with the agent: what it said lies unread, or what it is asked has not
// left. Its silence up to now says nothing of it.
struct Unserved {
  HostIndex host = 0;
};
// The agent has ended, wanted or not, and nothing that it had started is left.
struct AgentGone {
  HostIndex host = 0;
  std::string how;  // "was killed by SIGKILL (signal 9)"
};
// The agent sent what no agent of ours sends. Nothing further of it is believed.
struct AgentBroken {
  HostIndex host = 0;
  std::string how;
};
struct Launched {
  HostIndex host = 0;
  Incarnation incarnation = 0;
  int pid = 0;
  // The commit whose state it has got from its agent; empty: none. base/protocol/commit_id.h
  std::string kept = {};
};
struct LaunchFailed {
  HostIndex host = 0;
  Incarnation incarnation = 0;
  int error_number = 0;
  std::string message;
};
struct Initialised {
  HostIndex host = 0;
  Incarnation incarnation = 0;
};
struct Done {
  HostIndex host = 0;
  Incarnation incarnation = 0;
};
struct Exited {
  HostIndex host = 0;
  Incarnation incarnation = 0;
  int exit_code = 0;      // meaningful when signal_number is 0
  int signal_number = 0;  // what killed it, or 0
  bool core_dumped = false;
  bool out_of_memory = false;      // the kernel killed it for want of memory
  std::uint64_t memory_limit = 0;  // of its control group, in bytes; 0: none
  std::string kept = {};           // the commit whose state it has left with its agent
};

// ---- of an elastic job alone ----

struct FoundHost {
  HostSlots host;
  bool local = false;  // its agent would be a child of hvdrun
  bool joins = false;  // its agent has joined by itself; once that is gone, this answer is no more
};
// The hosts that may work from now on, in this order: discovery's newest answer.
struct HostsFound {
  std::vector<FoundHost> hosts;
};
// There will never be an answer.
struct DiscoveryFailed {
  std::string message;
};
// The answer to FindAddress, unless HostFailed is.
struct AddressFound {
  HostIndex host = 0;
  std::string address;          // where the others reach its workers
  std::string rendezvous = {};  // where it reaches the rendezvous service: "10.0.0.1:4711"
};
// The agent was told to go, or has a notice of --notice-command: its host is about to be taken
// away.
struct HostLeaves {
  HostIndex host = 0;
  bool is_notice = false;
  std::optional<std::chrono::milliseconds> left = {};  // as the notice says, if it does
};
// It runs, is connected as far as one can be without a world, and waits for one.
struct WorkerReady {
  HostIndex host = 0;
  Incarnation incarnation = 0;
};
// It was told to go, and will at its next commit.
struct LeaveRequested {
  HostIndex host = 0;
  Incarnation incarnation = 0;
};
// It takes no part any more although the work is not done. Without a reason it has called
// hvd::shutdown(), or ends with exit code 0; else it cannot go on.
struct WorkerLeft {
  HostIndex host = 0;
  Incarnation incarnation = 0;
  std::string reason;
  bool for_good = false;  // another worker in its slot would fail in the same way
};
// The answer to DescribeWorker: what the worker is doing.
struct Described {
  HostIndex host = 0;
  Incarnation incarnation = 0;
  std::string text;
};
// It says that at a commit all went over to this generation, which had been proposed.
struct Committed {
  HostIndex host = 0;
  Incarnation incarnation = 0;
  std::uint64_t generation = 0;
};

// It writes the state of the job that is to be suspended.
struct Saving {
  HostIndex host = 0;
  Incarnation incarnation = 0;
  std::uint64_t total = 0;  // bytes
  std::uint64_t written = 0;
  bool is_in_place = false;  // the file is complete and has its name
};

// All members of the world in force have come into it, and each has ended its first step there: how
// long that took the member that needed the longest, part by part (base/protocol/world_entry.h).
struct WorldEntered {
  std::uint64_t generation = 0;
  Incarnation slowest = 0;
  Duration leave{};
  Duration wait{};
  Duration connect{};
  Duration vote{};
  Duration sync{};
  Duration step{};
  std::uint64_t received = 0;  // bytes of the state, of all members together
  std::uint64_t redone = 0;    // steps that had begun since the last commit of the world before
  Duration time() const { return leave + wait + connect + vote + sync + step; }
};

// The other members of the world have waited for this one most of the time, for a while
// (driver/work/slow_ranks.h), or do so no longer.
struct FoundSlow {
  HostIndex host = 0;
  Incarnation incarnation = 0;
  bool is_slow = true;
};

// Somebody wants the job to end: the signal that hvdrun got.
struct StopRequested {
  int signal_number = 0;
};
// Somebody wants an elastic job to end so that it can be taken up again later: at its next commit,
// if it comes to one in time. A second request is one to stop.
struct SuspendRequested {
  int signal_number = 0;
};
// Somebody wants this host to take no part until that is undone, whatever discovery says. Each
// request is answered by one Answer; the same holds for the next one.
struct DrainRequested {
  std::string host_name;
  bool undo = false;
};
// Somebody wants the world to have at most so many workers.
struct ScaleRequested {
  int size = 0;
};
// This process had stopped itself (Ctrl-Z), and goes on.
struct Resumed {
  Duration stopped{};
};
// The driver of this job has died, and this process goes on in its place (driver/run/takeover.h).
// All events before are of the earlier drivers.
struct TakenOver {
  std::uint64_t epoch = 0;  // of this driver; the first one has 1
  Duration without_driver{};
};
// A stretch in which agents were heard and time has passed, and nothing else, as one event. Only
// journals have it (driver/journal/journal.h): a job that goes through it again is then as after
// all events of the stretch.
struct Quiet {
  struct Word {
    HostIndex host = 0;
    Duration ago{};  // before the end of the stretch
  };
  std::vector<Word> heard;  // the last Heard of each host
  std::vector<Word> unserved;
};
// Time has passed; due at next_deadline() and harmless at any time. All links were looked at
// before: an agent of which neither Heard nor Unserved was told has nothing unread and was asked in
// time.
struct Tick {};

}  // namespace event

using Event =
    std::variant<event::Begin, event::HostProgress, event::AgentReady, event::HostFailed,
                 event::AddressesChosen, event::Heard, event::Unserved, event::AgentGone,
                 event::AgentBroken, event::Launched, event::LaunchFailed, event::Initialised,
                 event::Done, event::Exited, event::HostsFound, event::DiscoveryFailed,
                 event::AddressFound, event::HostLeaves, event::WorkerReady, event::LeaveRequested,
                 event::WorkerLeft, event::Described, event::Committed, event::Saving,
                 event::WorldEntered, event::FoundSlow, event::StopRequested,
                 event::SuspendRequested, event::DrainRequested, event::ScaleRequested,
                 event::Resumed, event::TakenOver, event::Quiet, event::Tick>;

// The first thing that went wrong. `rank` is -1 if it was a host and no single worker; `host` is
// empty if it was none of them.
struct JobFailure {
  int rank = -1;
  std::string host;
  int slot = -1;
  Incarnation incarnation = 0;
  int pid = 0;
  std::string cause;  // "exited with code 3"
  // If hosts could not be made ready: all of those, in the job's order. `host` is the first.
  std::vector<FailedHost> hosts;
};

// To be performed in the order given. An action that concerns one agent may be sent as soon as its
// link takes bytes: nothing waits for its answer.
namespace action {

// Before any Launch that belongs to it: workers look for it as soon as they run.
// A proposed world that a commit took into force is published once more, as an effective one.
struct PublishWorld {
  WorldDocument world;
  std::string why;  // what is new in an effective one, for a person; empty in the first
};
// The world that was published last begins from nothing: what older ones committed does not count.
struct VoidCommits {
  std::uint64_t generation = 0;  // of that world
};
// Bring an agent there and to its Ready, tell the steps, have directory and program checked.
struct StartAgent {
  HostIndex host = 0;
};
// All agents are ready: find addresses by which all reach all. Answered by AddressesChosen, or by
// HostFailed for each host that is out of reach.
struct ChooseAddresses {};
// All agents have said how much room they have, and who works where is known from now on. Only of a
// job that did not know it when it began.
struct PlanStands {};
// Find the address by which the others of an elastic job reach this host. Answered by AddressFound
// or HostFailed.
struct FindAddress {
  HostIndex host = 0;
};
// At most once for each incarnation. A rank of -1: no world has it yet, it is to get ready for one.
struct Launch {
  HostIndex host = 0;
  WorldMember member;
};
// The agent itself kills when the grace is over.
struct StopWorkers {
  HostIndex host = 0;
  Incarnation incarnation = kEveryWorker;
  std::chrono::milliseconds grace{0};
  std::string reason;
};
struct KillWorkers {
  HostIndex host = 0;
  Incarnation incarnation = kEveryWorker;
};
// Asks for the activity of the worker. Answered by Described, unless it has ended.
struct DescribeWorker {
  HostIndex host = 0;
  Incarnation incarnation = 0;
};
struct ShutDownAgent {
  HostIndex host = 0;
  int exit_code = 0;  // for the program that waits for the agent: the job's
};
// Close its link and kill it, and all that it leaves behind; or give up the way to it. AgentGone
// must follow.
struct DropAgent {
  HostIndex host = 0;
};
struct Say {
  enum class To {
    verbose,  // for --verbose
    notice,   // for everybody: information, not an error
    warning,  // for everybody
  };
  To to = To::verbose;
  std::string text;
};
// To the client that made the request of this step.
struct Answer {
  bool accepted = false;
  std::string text;
};
// Once, last.
struct Finish {
  int exit_code = 0;
  std::optional<JobFailure> failure;
  std::string reason;
  bool suspended = false;  // it ended at a commit, and is to be taken up again
};

}  // namespace action

using Action = std::variant<action::PublishWorld, action::StartAgent, action::ChooseAddresses,
                            action::PlanStands, action::FindAddress, action::VoidCommits,
                            action::Launch, action::StopWorkers, action::KillWorkers,
                            action::DescribeWorker, action::ShutDownAgent, action::DropAgent,
                            action::Say, action::Answer, action::Finish>;

// One line: "launch a#0 incarnation 1 rank 0". `hosts` are the names by index.
std::string to_text(const Action& action, const std::vector<std::string>& hosts);

// "interrupted by SIGINT (signal 2): stopping 2 workers (SIGTERM now, SIGKILL after 5 s); a second
// signal kills at once"
std::string stopping_text(int signal_number, std::size_t workers, std::chrono::milliseconds grace);
// As end_text() (base/machine/child_process.h), and "was killed by SIGKILL (signal 9): out of
// memory (the memory limit of its control group is 64 MiB)".
std::string exit_text(const event::Exited& event);
// "a", "a and b", "a, b and c"; where there are more than some, the first and how many more.
std::string names_text(const std::vector<std::string>& names);
// Numbers in order, as in "0-3, 7"; after some ranges "..." and their count.
std::string range_text(const std::vector<int>& numbers);
// "1 worker", "3 workers"
std::string counted(std::size_t number, std::string_view what);
// "rank 3", "ranks 0-2, 5"
std::string ranks_text(const std::vector<int>& ranks);
// "1.5 GiB"
std::string bytes_text(std::uint64_t bytes);
// The message about a worker that others wait for in hvd::init(): " has not called hvd::init for
// 10 s, and rank 0 waits for it there: train (pid 7) runs, 1.2 s of processor time (...)".
// `doing`: its activity as its agent reports it; `absent`: how many such workers there are.
std::string absent_text(const std::string& doing, int rank_that_waits, std::size_t absent,
                        std::chrono::milliseconds waited, std::chrono::milliseconds limit);
// "214 ms: 3.0 ms to leave the previous world, 54 ms until hvdrun announced the new one, 21 ms to
// connect, 5.0 ms to agree on the state, 31 ms until all had it (4 MiB received), 100 ms for the
// first step; 3 steps are done again". Parts that took no time are left out.
std::string entry_text(const event::WorldEntered& entered);
// " (5 s left)"; of a deadline that never comes, nothing.
std::string left_text(TimePoint deadline, TimePoint now);

}  // namespace hvd::driver
