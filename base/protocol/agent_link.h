// What hvdrun's driver and an agent say to each other: frames (base/frame.h) over a socket pair on
// this host, over the agent's stdin and stdout on others. The link is private to the job (its far
// end was inherited or came through SSH), so no handshake stands before it.
//
// The order: the driver says Hello, the agent answers Ready. Launch requests may follow the Hello
// at once; each is answered, after Ready, by Launched or LaunchFailed. For a launched worker the
// agent sends Output while it lives, one Exited (after all output that the worker itself had
// written), one OutputClosed per stream when its last holder is gone. Shutdown ends everything: the
// agent kills what is left, flushes, says Bye and exits with 0. End of file on the link, in either
// direction, means that the other side is gone: the agent then kills all.
//
// Output is paid for: an agent sends at most kOutputWindow bytes of one stream that the driver has
// not returned by Credit, so a slow terminal holds back one worker's output and nothing else.
//
// Every struct here is a value with encode() to a whole frame and decode() from a payload that is
// not trusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/frame.h"
#include "base/status.h"

namespace hvd::agent_link {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::uint64_t kOutputWindow = std::uint64_t{1}
                                               << 20;  // bytes per stream in flight
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
};

// A worker's incarnation: unique within the job, never used again. 0 means "all of them" where
// allowed.
using Incarnation = std::uint64_t;
inline constexpr Incarnation kAllWorkers = 0;

enum class Stream : std::uint8_t { standard_output = 1, standard_error = 2 };

struct Hello {
  static constexpr Kind kKind = Kind::hello;
  std::uint32_t protocol = kProtocolVersion;
  std::string build_id;  // of hvdrun; the agent must be of the same build
  std::string job_id;
  std::string encode() const;
  static Result<Hello> decode(std::string_view payload);
};

struct Launch {
  static constexpr Kind kKind = Kind::launch;
  Incarnation incarnation = 0;
  std::string worker;                    // "host#slot"
  std::vector<std::string> command;      // program and arguments; searched in PATH of `environment`
  std::vector<std::string> environment;  // NAME=VALUE, all that the worker gets
  std::string working_directory;
  std::string welcome;  // worker_link::Welcome, encoded: handed on through the worker's descriptor
  std::string encode() const;
  static Result<Launch> decode(std::string_view payload);
};

// Sends `signal_number` to the worker's process group.
struct Signal {
  static constexpr Kind kKind = Kind::signal;
  Incarnation incarnation = kAllWorkers;
  std::int32_t signal_number = 0;
  std::string encode() const;
  static Result<Signal> decode(std::string_view payload);
};

// Announces the stop on the worker's descriptor, sends SIGTERM to its process group, and after
// `grace` kills every process that descends from it. With grace 0 it kills at once.
struct Stop {
  static constexpr Kind kKind = Kind::stop;
  Incarnation incarnation = kAllWorkers;
  std::uint32_t grace_ms = 0;
  std::string reason;
  std::string encode() const;
  static Result<Stop> decode(std::string_view payload);
};

// SIGKILL to every process that descends from the worker, at once.
struct Kill {
  static constexpr Kind kKind = Kind::kill;
  Incarnation incarnation = kAllWorkers;
  std::string encode() const;
  static Result<Kill> decode(std::string_view payload);
};

struct Credit {
  static constexpr Kind kKind = Kind::credit;
  Incarnation incarnation = 0;
  Stream stream = Stream::standard_output;
  std::uint64_t bytes = 0;
  std::string encode() const;
  static Result<Credit> decode(std::string_view payload);
};

// A new world document (base/protocol/world_document.h), handed on to every worker.
struct World {
  static constexpr Kind kKind = Kind::world;
  std::uint64_t generation = 0;
  std::string document;
  std::string encode() const;
  static Result<World> decode(std::string_view payload);
};

struct Heartbeat {
  static constexpr Kind kKind = Kind::heartbeat;
  std::uint64_t sequence = 0;
  std::string encode() const;
  static Result<Heartbeat> decode(std::string_view payload);
};

struct Shutdown {
  static constexpr Kind kKind = Kind::shutdown;
  std::string encode() const;
  static Result<Shutdown> decode(std::string_view payload);
};

struct Ready {
  static constexpr Kind kKind = Kind::ready;
  std::uint32_t protocol = kProtocolVersion;
  std::string build_id;
  std::int32_t pid = 0;
  std::string host_name;  // what the machine calls itself
  std::string encode() const;
  static Result<Ready> decode(std::string_view payload);
};

struct Launched {
  static constexpr Kind kKind = Kind::launched;
  Incarnation incarnation = 0;
  std::int32_t pid = 0;
  std::string encode() const;
  static Result<Launched> decode(std::string_view payload);
};

struct LaunchFailed {
  static constexpr Kind kKind = Kind::launch_failed;
  Incarnation incarnation = 0;
  std::int32_t error_number = 0;
  std::string
      message;  // what was tried and what happened: "find ./train in PATH: No such file ..."
  std::string encode() const;
  static Result<LaunchFailed> decode(std::string_view payload);
};

struct Output {
  static constexpr Kind kKind = Kind::output;
  Incarnation incarnation = 0;
  Stream stream = Stream::standard_output;
  std::string bytes;
  std::string encode() const;
  static Result<Output> decode(std::string_view payload);
};

struct OutputClosed {
  static constexpr Kind kKind = Kind::output_closed;
  Incarnation incarnation = 0;
  Stream stream = Stream::standard_output;
  std::string encode() const;
  static Result<OutputClosed> decode(std::string_view payload);
};

struct Exited {
  static constexpr Kind kKind = Kind::exited;
  Incarnation incarnation = 0;
  std::int32_t pid = 0;
  std::int32_t exit_code = 0;      // meaningful when signal_number is 0
  std::int32_t signal_number = 0;  // what killed it, or 0
  bool core_dumped = false;
  std::string encode() const;
  static Result<Exited> decode(std::string_view payload);
};

// The worker called hvd::init().
struct WorkerInitialised {
  static constexpr Kind kKind = Kind::worker_initialised;
  Incarnation incarnation = 0;
  std::string encode() const;
  static Result<WorkerInitialised> decode(std::string_view payload);
};

// The worker declared that its work is done.
struct WorkerDone {
  static constexpr Kind kKind = Kind::worker_done;
  Incarnation incarnation = 0;
  std::string encode() const;
  static Result<WorkerDone> decode(std::string_view payload);
};

struct HeartbeatAck {
  static constexpr Kind kKind = Kind::heartbeat_ack;
  std::uint64_t sequence = 0;
  std::string encode() const;
  static Result<HeartbeatAck> decode(std::string_view payload);
};

// Something that the person should read; the agent goes on.
struct Problem {
  static constexpr Kind kKind = Kind::problem;
  std::string message;
  std::string encode() const;
  static Result<Problem> decode(std::string_view payload);
};

struct Bye {
  static constexpr Kind kKind = Kind::bye;
  std::string encode() const;
  static Result<Bye> decode(std::string_view payload);
};

}  // namespace hvd::agent_link
