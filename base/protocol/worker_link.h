// The protocol between an agent and a worker: frames (base/frame.h) over an inherited socket pair.
// The worker finds its descriptor's number in HVD_WORKER_FD. A plain program that never calls hvd
// ignores it.
//
// A worker's libhvd may be of another build than the agent. So the Welcome begins with a version
// and the build of hvdrun, in a form that stays as it is, and so do Left and the number of its
// kind: a worker that cannot read the rest of the Welcome says so by Left
// (docs/internals/versions.md).
//
// The agent writes Welcome before the worker starts, so that it is there to be read at once. End of
// file means that the agent is gone, and with it the job: the worker's runtime ends the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/commit_id.h"
#include "base/protocol/fields.h"
#include "base/protocol/work_reading.h"
#include "base/security/crypto.h"
#include "base/status.h"

namespace hvd::worker_link {

inline constexpr const char* kDescriptorVariable = "HVD_WORKER_FD";
// The number of the descriptor of the lock that the worker holds (base/machine/life_lock.h).
inline constexpr const char* kLifeLockVariable = "HVD_LIFE_FD";
// The number of the descriptor of the memory in which the worker keeps the state of its job, if the
// agent holds any for it (base/protocol/state_memory.h).
inline constexpr const char* kStateMemoryVariable = "HVD_STATE_FD";
// The name of the process above a worker, as /proc shows it.
inline constexpr const char* kReaperName = "hvd-reaper";

// For what a worker still says of its activity: before its SIGTERM, and at the end of its world.
inline constexpr std::chrono::milliseconds kLastWordsTimeout{100};

enum class Kind : std::uint16_t {
  // agent -> worker
  unversioned_welcome = 1,  // of builds before the Welcome had a version; never sent any more
  world = 2,
  stop = 3,
  ping = 4,
  ask_activity = 5,
  welcome = 6,
  driver_gone = 7,
  // worker -> agent
  initialised = 101,
  done = 102,
  ready = 103,
  leave = 104,
  committed = 105,
  alive = 106,
  activity_wanted = 107,
  activity = 108,
  left = 109,
  work_report = 110,
  unreachable = 111,
  mark = 112,
};

// How each Welcome begins, in all versions.
struct WelcomeHead {
  std::uint32_t version = 0;  // WireVersions::worker_link
  std::string build_id;       // of hvdrun
  // Reads no further than it needs.
  static Result<WelcomeHead> decode(std::string_view payload);
};

struct Welcome {
  static constexpr Kind kKind = Kind::welcome;
  Welcome(std::string job, const Token& of_worker)
      : job_id(std::move(job)), credential(of_worker) {}
  std::string job_id;
  Token credential;    // this worker's own (base/protocol/credentials.h)
  std::string worker;  // "host#slot"
  std::uint64_t incarnation = 0;
  std::string rendezvous_host;  // an address, not a name
  std::uint16_t rendezvous_port = 0;
  std::string advertise_address;  // where this host's workers listen, and are reached by the others
  // A World follows at once: the newest effective one. This worker is a member of it, unless it is
  // to join later. False if no world is known yet; then the job has to be elastic.
  bool world_follows = false;
  bool elastic = false;  // the world may change while the job goes on
  bool bound = false;    // each worker of this host may use only processors that no other one may
  std::string encode() const;
  static Result<Welcome> decode(std::string_view payload);
};

// A newer world document (base/protocol/world_document.h). Effective ones come in the order of
// their generations, and so do proposed ones; a proposed world that a commit took into force comes
// once more, as an effective one, and may then be older than the newest proposed one.
struct World {
  static constexpr Kind kKind = Kind::world;
  std::uint64_t generation = 0;
  bool effective = true;
  std::string document;
  std::string key;  // of this generation, sealed for this worker; empty if it is no member
  HVD_MESSAGE_FIELDS(World, generation, effective, document, key)
};

// The job is being stopped; the SIGTERM that follows is no preemption notice.
struct Stop {
  static constexpr Kind kKind = Kind::stop;
  std::string reason;
  HVD_MESSAGE_FIELDS(Stop, reason)
};

// To be answered at once. Only a worker that has said Initialised, and neither Done nor Left since,
// is asked.
struct Ping {
  static constexpr Kind kKind = Kind::ping;
  HVD_MESSAGE_FIELDS(Ping)
};

struct Initialised {
  static constexpr Kind kKind = Kind::initialised;
  std::int32_t pid = 0;
  HVD_MESSAGE_FIELDS(Initialised, pid)
};

struct Done {
  static constexpr Kind kKind = Kind::done;
  HVD_MESSAGE_FIELDS(Done)
};

// It is no member yet, has done all that can be done without a world, and waits for one that it is
// a member of.
struct Ready {
  static constexpr Kind kKind = Kind::ready;
  HVD_MESSAGE_FIELDS(Ready)
};

// It was told to go (SIGTERM that no Stop has announced), and wants to leave at a commit.
struct Leave {
  static constexpr Kind kKind = Kind::leave;
  HVD_MESSAGE_FIELDS(Leave)
};

// At a commit all members went over to this generation, which had been proposed. Said by each of
// them before it connects, also by members that leave with it.
struct Committed {
  static constexpr Kind kKind = Kind::committed;
  std::uint64_t generation = 0;
  HVD_MESSAGE_FIELDS(Committed, generation)
};

// Asks for the activity of the worker. To be answered by Activity, at once.
struct AskActivity {
  static constexpr Kind kKind = Kind::ask_activity;
  std::uint32_t id = 0;
  HVD_MESSAGE_FIELDS(AskActivity, id)
};

// In words for a person. A worker also sends it unasked when its world fails. Longer texts are cut.
struct Activity {
  static constexpr Kind kKind = Kind::activity;
  // The agent asks with it before it stops the worker.
  static constexpr std::uint32_t kAtTheEnd = 0;
  static constexpr std::size_t kMaxText = 4'000;  // bytes
  std::uint32_t id = 0;                           // of the question, or kAtTheEnd
  std::uint64_t generation = 0;                   // of its world; 0: it is in none
  std::string in_flight;  // "allreduce "a" (4096 bytes) waits for other ranks for 12.3 s"
  std::string last;       // that ended: "allreduce "b" (4096 bytes), done 12.4 s ago"
  // "rank 3 on b#1 has not asked for "a"", one line for each rank; or empty
  std::string missing = {};
  HVD_MESSAGE_FIELDS(Activity, id, generation, in_flight, last, missing)
};

// The work counters of this worker. The worker sends them about once a second, and the agent passes
// on the newest.
struct WorkReport {
  static constexpr Kind kKind = Kind::work_report;
  WorkReading reading;
  Status check() const { return reading.check(); }
  HVD_MESSAGE_FIELDS(WorkReport, reading)
};

// A person has asked this worker what it does (SIGUSR1), and wants to hear it of all.
struct ActivityWanted {
  static constexpr Kind kKind = Kind::activity_wanted;
  HVD_MESSAGE_FIELDS(ActivityWanted)
};

// A worker of an elastic job takes no part any more although the work is not done: it has called
// hvd::shutdown() or ends with exit code 0 early (no reason), or it cannot: then what was
// tried and what happened. Its form is the same in all versions.
struct Left {
  static constexpr Kind kKind = Kind::left;
  static constexpr std::size_t kMaxReason = 4'000;  // bytes; what is longer is cut
  std::string reason;
  bool for_good = false;  // another process in its place would fail in the same way
  HVD_MESSAGE_FIELDS(Left, reason, for_good)
};

// A worker of an elastic job could not reach this host of its world in time.
struct Unreachable {
  static constexpr Kind kKind = Kind::unreachable;
  static constexpr std::size_t kMaxHost = 1'000;  // bytes
  std::string host;
  Status check() const {
    return host.size() <= kMaxHost ? Status() : Status(Code::data_loss, "the host is too long");
  }
  HVD_MESSAGE_FIELDS(Unreachable, host)
};

// There is no hvdrun at the moment, and the agent holds its workers for a successor; or there is
// one again, which may be on another machine: then this says where the rendezvous service is. Said
// when it changes, but of words that the worker has not read only the newest is kept. A hvdrun that
// is slow or frozen is not gone.
struct DriverGone {
  static constexpr Kind kKind = Kind::driver_gone;
  bool gone = false;
  std::string rendezvous_host = {};   // as in Welcome
  std::uint16_t rendezvous_port = 0;  // 0: where the Welcome says
  HVD_MESSAGE_FIELDS(DriverGone, gone, rendezvous_host, rendezvous_port)
};

// The newest commit that this worker knows of, in the text of CommitId. A worker says it as soon as
// there is no hvdrun, and of each later commit until there is one again: the agent hands the newest
// to the successor, and must do so also with one that comes a moment late. Marks of several workers
// may come in any order; the greatest counts.
struct Mark {
  static constexpr Kind kKind = Kind::mark;
  std::string commit;
  // Only the text that to_text() writes, which is short.
  Status check() const {
    const auto id = commit_id_from_text(commit);
    const bool is_proper = id.ok() && to_text(*id) == commit;
    return is_proper ? Status() : Status(Code::data_loss, "the mark is not a commit");
  }
  HVD_MESSAGE_FIELDS(Mark, commit)
};

// The answer to Ping.
struct Alive {
  static constexpr Kind kKind = Kind::alive;
  HVD_MESSAGE_FIELDS(Alive)
};

}  // namespace hvd::worker_link
