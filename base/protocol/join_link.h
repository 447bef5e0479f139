// The protocol between `hvdrun agent --join` and the driver before the frames of agent_link.h,
// inside TLS 1.3 that both sides authenticate with the pre-shared key of a token file: Join, then
// Accepted or Refused.
//
// An agent that was accepted waits for its turn. Meanwhile the driver sends a Heartbeat at a steady
// pace, the agent answers each with a HeartbeatAck, and each side gives the other up after
// Accepted::silence_ms of silence. The wait ends with Begin or Dismissed. After Begin the driver's
// bytes are the agent link's; the agent answers with Begun, after which its own bytes are.
//
// Both sides are of the same build, which is the version of these messages. It stands first in
// every Join and is read first; Refused never changes. So an agent of another build hears why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/fields.h"
#include "base/status.h"

namespace hvd::join_link {

enum class Kind : std::uint16_t {
  join = 1,
  accepted = 2,
  refused = 3,
  heartbeat = 4,
  heartbeat_ack = 5,
  begin = 6,
  begun = 7,
  dismissed = 8,
};

struct Join {
  static constexpr Kind kKind = Kind::join;
  std::string build_id;
  std::string host;  // the name by which the job knows it
  std::int32_t slots = 1;
  std::vector<std::string> labels = {};  // base/labels.h
  // That of the Accepted by which an earlier driver has let it join by the same token; empty: none
  // has.
  std::string pass = {};
  HVD_MESSAGE_FIELDS(Join, build_id, host, slots, labels, pass)
};

struct Accepted {
  static constexpr Kind kKind = Kind::accepted;
  std::uint64_t silence_ms = 0;
  // When the connection is lost the agent keeps its workers for so long, and joins again.
  std::uint64_t hold_ms = 0;
  // By which the next driver knows that it had joined; empty: the token alone lets it join again.
  std::string pass = {};
  HVD_MESSAGE_FIELDS(Accepted, silence_ms, hold_ms, pass)
};

struct Refused {
  static constexpr Kind kKind = Kind::refused;
  std::string reason;
  bool final = false;  // coming again would not help
  HVD_MESSAGE_FIELDS(Refused, reason, final)
};

struct Heartbeat {
  static constexpr Kind kKind = Kind::heartbeat;
  HVD_MESSAGE_FIELDS(Heartbeat)
};

struct HeartbeatAck {
  static constexpr Kind kKind = Kind::heartbeat_ack;
  HVD_MESSAGE_FIELDS(HeartbeatAck)
};

struct Begin {
  static constexpr Kind kKind = Kind::begin;
  HVD_MESSAGE_FIELDS(Begin)
};

struct Begun {
  static constexpr Kind kKind = Kind::begun;
  HVD_MESSAGE_FIELDS(Begun)
};

// The job has ended, or goes on without this agent. A connection that ends without it was lost.
struct Dismissed {
  static constexpr Kind kKind = Kind::dismissed;
  HVD_MESSAGE_FIELDS(Dismissed)
};

}  // namespace hvd::join_link
