// What an agent and a worker say to each other: frames (base/frame.h) over an inherited socket
// pair. The worker finds its descriptor's number in HVD_WORKER_FD. A plain program that never calls
// hvd ignores it.
//
// The agent writes Welcome before the worker starts, so that it is there to be read at once. End of
// file means that the agent is gone, and with it the job: the worker's runtime ends the process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "base/frame.h"
#include "base/status.h"

namespace hvd::worker_link {

inline constexpr const char* kDescriptorVariable = "HVD_WORKER_FD";

enum class Kind : std::uint16_t {
  // agent -> worker
  welcome = 1,
  world = 2,
  stop = 3,
  // worker -> agent
  initialised = 101,
  done = 102,
};

struct Welcome {
  static constexpr Kind kKind = Kind::welcome;
  Welcome(std::string job, const Token& job_token) : job_id(std::move(job)), token(job_token) {}
  std::string job_id;
  Token token;
  std::string worker;  // "host#slot"
  std::uint64_t incarnation = 0;
  std::string rendezvous_host;  // an address, not a name
  std::uint16_t rendezvous_port = 0;
  std::string advertise_address;  // where this host's workers listen, and are reached by the others
  std::string world;              // the world document of the first generation, if it is known yet
  std::string encode() const;
  static Result<Welcome> decode(std::string_view payload);
};

// A newer world document (base/protocol/world_document.h).
struct World {
  static constexpr Kind kKind = Kind::world;
  std::uint64_t generation = 0;
  std::string document;
  std::string encode() const;
  static Result<World> decode(std::string_view payload);
};

// The job is being stopped; the SIGTERM that follows is no preemption notice.
struct Stop {
  static constexpr Kind kKind = Kind::stop;
  std::string reason;
  std::string encode() const;
  static Result<Stop> decode(std::string_view payload);
};

struct Initialised {
  static constexpr Kind kKind = Kind::initialised;
  std::int32_t pid = 0;
  std::string encode() const;
  static Result<Initialised> decode(std::string_view payload);
};

struct Done {
  static constexpr Kind kKind = Kind::done;
  std::string encode() const;
  static Result<Done> decode(std::string_view payload);
};

}  // namespace hvd::worker_link
