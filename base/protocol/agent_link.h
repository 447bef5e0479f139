// The protocol between hvdrun's driver and an agent: frames (base/frame.h) over the agent's stdin
// and stdout. The link is private to the job (its far end was inherited, or came through SSH or
// TLS), so no handshake stands before it.
//
// The order: the driver says Hello, the agent answers Ready, once no older agent of the job is on
// the host any more (cmd/hvd-agent/host_claim.h). Requests may follow the Hello at once;
// they are answered after Ready. Check and Probe find out, before anything is started, whether this
// host can do its part. Each Launch is answered by Launched or LaunchFailed. For a launched worker
// the agent sends Output while it lives, one Exited (after all output that the worker itself had
// written), one OutputClosed per stream when its last holder is gone. Shutdown ends everything: the
// agent kills what is left, flushes, says Bye and exits with 0. End of file on the link, in either
// direction, means that the other side is gone: the agent then kills all.
//
// The lease: from its Ready on an agent may let its workers run only while it hears the driver. The
// driver sends a Heartbeat at a steady pace, each is answered at once by HeartbeatAck, and each
// says which acknowledgement was the newest to have reached the driver when it was sent. The agent
// remembers when it sent that one: at that moment, or later, the driver still heard it. So the
// lease runs until lease_ms after the moment at which the newest acknowledgement that a Heartbeat
// has named was sent (before there is one: after Ready was). No two clocks are compared, and delay
// on the way makes a lease shorter, never longer. When it runs out the agent freezes its workers; a
// Heartbeat that renews it lets them go on; after orphan_timeout_ms of silence it kills them and
// ends. (Compare Gray and Cheriton, "Leases", 1989.) Time in which the agent itself was stopped is
// no silence, nor is, on the driver's own machine, time in which the driver was.
//
// Holding: an agent whose Hello has named a time for it does not end with its link. Its workers run
// on, it keeps what it has to say, and a later driver of the job that starts an agent on this host
// gets this one (cmd/hvd-agent/link_handover.h). It is the end of the link that tells that the
// driver has died. A link that is silent tells nothing, so that the lease ends as ever.
//
// Pause stops the workers of a job that a person has stopped (Ctrl-Z), lease or no lease, and says
// when they may go on. The agent answers it by Paused, so that the driver knows that it may stop.
//
// Output is paid for: an agent sends at most kOutputWindow bytes of one stream that the driver has
// not returned by Credit, so a slow terminal holds back one worker's output and nothing else.
//
// Every struct here is a value with encode() to a whole frame and decode() from a payload that is
// not trusted (base/protocol/fields.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/machine/machine.h"
#include "base/machine/topology.h"
#include "base/protocol/fields.h"
#include "base/protocol/work_reading.h"
#include "base/status.h"

namespace hvd::agent_link {

inline constexpr std::uint32_t kProtocolVersion = 16;
inline constexpr std::uint64_t kOutputWindow = std::uint64_t{256}
                                               << 10;  // bytes per stream in flight
inline constexpr std::size_t kMaxOutputChunk = std::size_t{64} << 10;

enum class Kind : std::uint16_t {
  // driver -> agent
  hello = 1,
  launch = 2,
  signal = 3,
  stop = 4,
  kill = 5,
  credit = 6,
  world = 7,
  heartbeat = 8,
  shutdown = 9,
  check = 10,
  probe = 11,
  pause = 12,
  ask_activity = 13,
  describe = 14,
  program = 15,
  world_keys = 16,
  rendezvous = 17,
  // agent -> driver
  ready = 101,
  launched = 102,
  launch_failed = 103,
  output = 104,
  output_closed = 105,
  exited = 106,
  worker_initialised = 107,
  worker_done = 108,
  heartbeat_ack = 109,
  problem = 110,
  bye = 111,
  checked = 112,
  probed = 113,
  worker_ready = 114,
  worker_leaves = 115,
  world_committed = 116,
  host_leaves = 117,
  paused = 118,
  activity_wanted = 119,
  worker_activity = 120,
  worker_left = 121,
  described = 122,
  work_reports = 123,
  worker_cannot_reach = 124,
  commit_mark = 125,
};

// A worker's incarnation: unique within the job, never used again. 0 means "all of them" where
// allowed.
using Incarnation = std::uint64_t;
inline constexpr Incarnation kAllWorkers = 0;

enum class Stream : std::uint8_t { standard_output = 1, standard_error = 2 };
Status check(Stream stream);

struct Hello {
  static constexpr Kind kKind = Kind::hello;
  std::uint32_t protocol = kProtocolVersion;
  std::string build_id;  // of hvdrun; the agent must be of the same build
  std::string job_id;
  std::uint32_t lease_ms = 0;           // 0: no lease, heartbeats are only answered
  std::uint32_t orphan_timeout_ms = 0;  // 0: silence never kills
  std::uint64_t open_files =
      0;                 // soft limit of descriptors for workers; 0: what the agent was given
  bool elastic = false;  // the job can go on without this host: SIGTERM is a notice at first
  // A worker that has called hvd::init() and gives no sign of life for so long is killed; 0: never.
  std::uint32_t worker_silence_ms = 0;
  bool local = false;  // the agent is a child of the driver: it sees whether that was stopped
  // The range of ports for listeners; 0: any port.
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  // Names of interfaces, or addresses, at which other hosts may reach this one; empty: any.
  std::vector<std::string> listen_on = {};
  // The job's name for this host. An older agent of the job there ends before this one is ready;
  // empty: there may be several.
  std::string host = {};
  // From SIGTERM to SIGKILL of the workers of an agent that is itself told to end.
  std::uint32_t grace_ms = 5'000;
  // How often the job has had another driver; from 1 on. An agent obeys none that is older than the
  // one that it has obeyed. 0: this job ends with its driver.
  std::uint64_t epoch = 0;
  // For so long the workers run on when the link has ended, until a later driver comes.
  std::uint32_t hold_ms = 0;
  // An agent that holds workers of an earlier driver is to serve this link.
  bool takes_over = false;
  // The agent is a child of `hvdrun agent`, and ends with it also while it holds workers.
  bool joined = false;
  // The workers that the agent holds hear of this driver no sooner than a Rendezvous has come.
  bool rendezvous_follows = false;
  HVD_MESSAGE_FIELDS(Hello, protocol, build_id, job_id, lease_ms, orphan_timeout_ms, open_files,
                     elastic, worker_silence_ms, local, first_port, last_port, listen_on, host,
                     grace_ms, epoch, hold_ms, takes_over, joined, rendezvous_follows)
};

// The settings that all workers of a job have in common. Sent once, before the first Launch; it
// completes every Launch that follows (see complete()), so that a Launch carries only what belongs
// to one worker.
struct Program {
  static constexpr Kind kKind = Kind::program;
  std::vector<std::string> command;
  std::vector<std::string> environment;
  std::string working_directory;
  std::vector<std::string> host_variables;
  // The agent holds memory in which each worker keeps the state of the job.
  bool keeps_state = false;
  // For sh: it tells when this host is about to be taken away (cmd/hvd-agent/notice_command.h).
  // Empty: there is none.
  std::string notice_command = {};
  HVD_MESSAGE_FIELDS(Program, command, environment, working_directory, host_variables, keeps_state,
                     notice_command)
};

// The worker gets its Welcome through its descriptor, and behind it the newest effective World that
// the agent was sent, if it was sent one.
struct Launch {
  static constexpr Kind kKind = Kind::launch;
  Incarnation incarnation = 0;
  std::string worker;                    // "host#slot"
  std::vector<std::string> command;      // program and arguments; searched in PATH of `environment`
  std::vector<std::string> environment;  // NAME=VALUE
  std::string working_directory;
  std::string welcome;  // worker_link::Welcome, encoded: handed on through the worker's descriptor
  // Names whose values are this host's own business (HOME, USER, ...): what the agent itself was
  // given is added to `environment`, unless the name stands there.
  std::vector<std::string> host_variables;
  // The worker runs on one of `parts` equal parts of the host's processors.
  Binding binding = Binding::none;
  std::uint32_t part = 0;
  std::uint32_t parts = 1;
  Status check() const;
  HVD_MESSAGE_FIELDS(Launch, incarnation, worker, command, environment, working_directory, welcome,
                     host_variables, binding, part, parts)
};

// The Launch with what the Program says wherever the Launch itself is silent: of `command` and
// `working_directory` if they are empty, of `environment` the names that the Launch does not set,
// and all `host_variables`.
Launch complete(const Program& program, Launch launch);

// Sends `signal_number` to the worker's process group.
struct Signal {
  static constexpr Kind kKind = Kind::signal;
  Incarnation incarnation = kAllWorkers;
  std::int32_t signal_number = 0;
  HVD_MESSAGE_FIELDS(Signal, incarnation, signal_number)
};

// Announces the stop on the worker's descriptor, sends SIGTERM to its process group, and after
// `grace` kills every process that descends from it. With grace 0 it kills at once.
struct Stop {
  static constexpr Kind kKind = Kind::stop;
  Incarnation incarnation = kAllWorkers;
  std::uint32_t grace_ms = 0;
  std::string reason;
  HVD_MESSAGE_FIELDS(Stop, incarnation, grace_ms, reason)
};

// SIGKILL to every process that descends from the worker, at once.
struct Kill {
  static constexpr Kind kKind = Kind::kill;
  Incarnation incarnation = kAllWorkers;
  HVD_MESSAGE_FIELDS(Kill, incarnation)
};

struct Credit {
  static constexpr Kind kKind = Kind::credit;
  Incarnation incarnation = 0;
  Stream stream = Stream::standard_output;
  std::uint64_t bytes = 0;
  HVD_MESSAGE_FIELDS(Credit, incarnation, stream, bytes)
};

struct WorkerKey {
  Incarnation incarnation = 0;
  std::string sealed;  // as bytes (base/protocol/credentials.h)
  friend bool operator==(const WorkerKey&, const WorkerKey&) = default;
  void fields(auto& archive) { archive(incarnation, sealed); }
};

// The key of the World that follows at once, for each of its members on this host.
struct WorldKeys {
  static constexpr Kind kKind = Kind::world_keys;
  std::uint64_t generation = 0;
  std::vector<WorkerKey> keys;
  HVD_MESSAGE_FIELDS(WorldKeys, generation, keys)
};

// A new world document (base/protocol/world_document.h), handed on to every worker, as
// worker_link::World. Effective and proposed ones do not replace each other on the way. Workers
// that are launched later get the newest effective one. So each host gets a document once, however
// many workers it has, and the same bytes as all others.
struct World {
  static constexpr Kind kKind = Kind::world;
  std::uint64_t generation = 0;
  bool effective = true;
  std::string document;
  HVD_MESSAGE_FIELDS(World, generation, effective, document)
};

// The rendezvous service is there from now on for the workers that the agent has held.
struct Rendezvous {
  static constexpr Kind kKind = Kind::rendezvous;
  std::string host;  // an address, not a name
  std::uint16_t port = 0;
  HVD_MESSAGE_FIELDS(Rendezvous, host, port)
};

struct Heartbeat {
  static constexpr Kind kKind = Kind::heartbeat;
  std::uint64_t sequence = 0;      // from 1 on
  std::uint64_t acknowledged = 0;  // the newest HeartbeatAck that had arrived; 0: none
  HVD_MESSAGE_FIELDS(Heartbeat, sequence, acknowledged)
};

// Stops everything that descends from the workers, or lets it go on as far as the lease allows.
struct Pause {
  static constexpr Kind kKind = Kind::pause;
  bool on = true;
  HVD_MESSAGE_FIELDS(Pause, on)
};

// Asks for the activity of the workers. Answered by one WorkerActivity for each of them: at once,
// or when it has not answered for so long.
struct AskActivity {
  static constexpr Kind kKind = Kind::ask_activity;
  std::uint32_t id = 0;
  std::uint32_t timeout_ms = 0;
  HVD_MESSAGE_FIELDS(AskActivity, id, timeout_ms)
};

// Kill the workers that are left, say Bye, and end with this code.
struct Shutdown {
  static constexpr Kind kKind = Kind::shutdown;
  std::uint8_t exit_code = 0;
  HVD_MESSAGE_FIELDS(Shutdown, exit_code)
};

// Can a worker be started here? Answered by Checked; nothing is started.
struct Check {
  static constexpr Kind kKind = Kind::check;
  std::string working_directory;
  std::string program;      // with a slash: a path, relative to working_directory; else searched in
  std::string search_path;  // this PATH
  HVD_MESSAGE_FIELDS(Check, working_directory, program, search_path)
};

struct ProbeTarget {
  std::string address;  // IPv4 or IPv6, no name
  std::uint16_t port = 0;
  std::string greeting;  // what the other side must send at once; empty: to connect is enough
  friend bool operator==(const ProbeTarget&, const ProbeTarget&) = default;
  void fields(auto& archive) { archive(address, port, greeting); }
};

// Which of these can be reached from this host, by TCP? All are tried at once. Answered by Probed.
struct Probe {
  static constexpr Kind kKind = Kind::probe;
  std::uint32_t id = 0;
  std::uint32_t timeout_ms = 0;
  std::vector<ProbeTarget> targets;
  bool refusal_counts = false;  // a host that refuses the connection is reached, too
  HVD_MESSAGE_FIELDS(Probe, id, timeout_ms, targets, refusal_counts)
};

// Asks for the activity of this worker. Answered by Described, unless it has ended.
struct Describe {
  static constexpr Kind kKind = Kind::describe;
  Incarnation incarnation = 0;
  HVD_MESSAGE_FIELDS(Describe, incarnation)
};

struct Ready {
  static constexpr Kind kKind = Kind::ready;
  std::uint32_t protocol = kProtocolVersion;
  std::string build_id;
  std::int32_t pid = 0;
  std::string host_name;  // what the machine calls itself
  // Its addresses, interfaces that are down left out; loopback and link-local ones too.
  std::vector<Interface> interfaces;
  // Where the agent listens until its first Launch, at the addresses of Hello::listen_on, for
  // Probes of other agents: each visitor is sent the greeting and nothing else. 0: it does not
  // listen, since it could not, or since it is local.
  std::uint16_t probe_port = 0;
  std::string probe_greeting;
  std::uint16_t free_port = 0;    // a TCP port that nobody used when it looked; 0: none
  std::int32_t gpus = 0;          // of the machine
  std::int32_t visible_gpus = 0;  // that the agent's own CUDA_VISIBLE_DEVICES leaves of them
  std::int32_t cores = 1;         // that its processes may use
  std::string port_error = {};    // why it found no port in the range of Hello; empty: it did
  // It has served an earlier driver of the job, and what it was asked then holds. All that it has
  // said of workers since its first Ready follows once more, whether the earlier driver has read it
  // or not.
  bool was_held = false;
  Status check() const;
  HVD_MESSAGE_FIELDS(Ready, protocol, build_id, pid, host_name, interfaces, probe_port,
                     probe_greeting, free_port, gpus, visible_gpus, cores, port_error, was_held)
};

// The newest commit that a worker here has made while there was no driver (CommitId,
// base/protocol/world_document.h), for the rendezvous service of the next one.
struct CommitMark {
  static constexpr Kind kKind = Kind::commit_mark;
  std::string commit;
  HVD_MESSAGE_FIELDS(CommitMark, commit)
};

struct Launched {
  static constexpr Kind kKind = Kind::launched;
  Incarnation incarnation = 0;
  std::int32_t pid = 0;
  // The commit whose state lies in the memory that the worker got from the agent, as
  // base/protocol/commit_id.h has it; empty: none, or it has got no memory.
  std::string kept;
  HVD_MESSAGE_FIELDS(Launched, incarnation, pid, kept)
};

struct LaunchFailed {
  static constexpr Kind kKind = Kind::launch_failed;
  Incarnation incarnation = 0;
  std::int32_t error_number = 0;
  std::string
      message;  // what was tried and what happened: "find ./train in PATH: No such file ..."
  HVD_MESSAGE_FIELDS(LaunchFailed, incarnation, error_number, message)
};

struct Output {
  static constexpr Kind kKind = Kind::output;
  Incarnation incarnation = 0;
  Stream stream = Stream::standard_output;
  std::string bytes;
  HVD_MESSAGE_FIELDS(Output, incarnation, stream, bytes)
};

struct OutputClosed {
  static constexpr Kind kKind = Kind::output_closed;
  Incarnation incarnation = 0;
  Stream stream = Stream::standard_output;
  HVD_MESSAGE_FIELDS(OutputClosed, incarnation, stream)
};

struct Exited {
  static constexpr Kind kKind = Kind::exited;
  Incarnation incarnation = 0;
  std::int32_t pid = 0;
  std::int32_t exit_code = 0;      // meaningful when signal_number is 0
  std::int32_t signal_number = 0;  // what killed it, or 0
  bool core_dumped = false;
  // The kernel killed it for want of memory, by the account of its control group.
  bool out_of_memory = false;
  std::uint64_t memory_limit = 0;  // of that group, in bytes; 0: none
  std::uint16_t free_port = 0;     // replaces that of Ready, which a worker may have used; 0: none
  std::string kept;                // the commit whose state it has left with the agent; empty: none
  HVD_MESSAGE_FIELDS(Exited, incarnation, pid, exit_code, signal_number, core_dumped, out_of_memory,
                     memory_limit, free_port, kept)
};

// The worker called hvd::init().
struct WorkerInitialised {
  static constexpr Kind kKind = Kind::worker_initialised;
  Incarnation incarnation = 0;
  HVD_MESSAGE_FIELDS(WorkerInitialised, incarnation)
};

// The worker declared that its work is done.
struct WorkerDone {
  static constexpr Kind kKind = Kind::worker_done;
  Incarnation incarnation = 0;
  HVD_MESSAGE_FIELDS(WorkerDone, incarnation)
};

// The worker waits for a world to join (worker_link::Ready).
struct WorkerReady {
  static constexpr Kind kKind = Kind::worker_ready;
  Incarnation incarnation = 0;
  HVD_MESSAGE_FIELDS(WorkerReady, incarnation)
};

// The worker wants to leave at a commit (worker_link::Leave).
struct WorkerLeaves {
  static constexpr Kind kKind = Kind::worker_leaves;
  Incarnation incarnation = 0;
  HVD_MESSAGE_FIELDS(WorkerLeaves, incarnation)
};

// The worker takes no part any more (worker_link::Left).
struct WorkerLeft {
  static constexpr Kind kKind = Kind::worker_left;
  Incarnation incarnation = 0;
  std::string reason;
  bool for_good = false;
  HVD_MESSAGE_FIELDS(WorkerLeft, incarnation, reason, for_good)
};

// A worker could not reach this host of its world in time (worker_link::Unreachable).
struct WorkerCannotReach {
  static constexpr Kind kKind = Kind::worker_cannot_reach;
  std::string host;
  HVD_MESSAGE_FIELDS(WorkerCannotReach, host)
};

// For a person: "train (pid 4242) runs, 12.3 s of processor time".
struct Described {
  static constexpr Kind kKind = Kind::described;
  Incarnation incarnation = 0;
  std::string text;
  HVD_MESSAGE_FIELDS(Described, incarnation, text)
};

// The worker says that at a commit all went over to this generation (worker_link::Committed).
struct WorldCommitted {
  static constexpr Kind kKind = Kind::world_committed;
  Incarnation incarnation = 0;
  std::uint64_t generation = 0;
  HVD_MESSAGE_FIELDS(WorldCommitted, incarnation, generation)
};

// The agent of an elastic job got SIGTERM, or its notice command has ended with 0: its host is
// about to be taken away. It works on until it is told to end, or gets another SIGTERM.
struct HostLeaves {
  static constexpr Kind kKind = Kind::host_leaves;
  static constexpr std::int32_t kUnknown = -1;
  bool is_notice = false;           // of the notice command
  std::int32_t left_ms = kUnknown;  // until the host is taken away, as the command has said
  Status check() const;
  HVD_MESSAGE_FIELDS(HostLeaves, is_notice, left_ms)
};

// The agent or one of its workers got SIGUSR1: somebody wants to know what all workers do.
struct ActivityWanted {
  static constexpr Kind kKind = Kind::activity_wanted;
  HVD_MESSAGE_FIELDS(ActivityWanted)
};

struct WorkerActivity {
  static constexpr Kind kKind = Kind::worker_activity;
  std::uint32_t id = 0;  // as in worker_link::Activity, and the generation, too
  std::uint64_t generation = 0;
  Incarnation incarnation = 0;
  char process_state = 0;    // as hvd::state_of() says it; 0: there is no process
  bool initialised = false;  // it has called hvd::init()
  bool answered = false;     // the texts are its own (worker_link::Activity); else they are empty
  std::string in_flight;
  std::string last;
  std::string missing = {};
  HVD_MESSAGE_FIELDS(WorkerActivity, id, generation, incarnation, process_state, initialised,
                     answered, in_flight, last, missing)
};

struct WorkerWork {
  Incarnation incarnation = 0;
  WorkReading reading = {};
  friend bool operator==(const WorkerWork&, const WorkerWork&) = default;
  void fields(auto& archive) { archive(incarnation, reading); }
};

// The work counters of each worker that has reported since the last such message. The agent sends
// them with the answer to a Heartbeat, and before Exited.
struct WorkReports {
  static constexpr Kind kKind = Kind::work_reports;
  std::vector<WorkerWork> workers = {};
  Status check() const;
  HVD_MESSAGE_FIELDS(WorkReports, workers)
};

// The answer to Pause: what it asks for is being done.
struct Paused {
  static constexpr Kind kKind = Kind::paused;
  bool on = true;
  HVD_MESSAGE_FIELDS(Paused, on)
};

struct HeartbeatAck {
  static constexpr Kind kKind = Kind::heartbeat_ack;
  std::uint64_t sequence = 0;
  HVD_MESSAGE_FIELDS(HeartbeatAck, sequence)
};

struct Checked {
  static constexpr Kind kKind = Kind::checked;
  enum class Step : std::uint8_t { nothing_wrong = 0, change_directory = 1, find_program = 2 };
  friend Status check(Step step);
  Step failed = Step::nothing_wrong;
  std::int32_t error_number = 0;
  std::string message;  // what was tried and what happened
  HVD_MESSAGE_FIELDS(Checked, failed, error_number, message)
};

struct Probed {
  static constexpr Kind kKind = Kind::probed;
  std::uint32_t id = 0;
  std::vector<std::string> errors;  // one for each target, in order; empty: it was reached
  HVD_MESSAGE_FIELDS(Probed, id, errors)
};

// Something that the person should read; the agent goes on.
struct Problem {
  static constexpr Kind kKind = Kind::problem;
  std::string message;
  HVD_MESSAGE_FIELDS(Problem, message)
};

struct Bye {
  static constexpr Kind kKind = Kind::bye;
  HVD_MESSAGE_FIELDS(Bye)
};

}  // namespace hvd::agent_link
