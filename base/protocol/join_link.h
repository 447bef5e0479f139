// What `hvdrun agent --join` and the driver say to each other before the frames of agent_link.h,
// inside TLS 1.3 that both sides authenticate with the pre-shared key of a token file: Join, then
// Accepted or Refused. After Accepted the bytes are the agent link's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/fields.h"
#include "base/status.h"

namespace hvd::join_link {

enum class Kind : std::uint16_t { join = 1, accepted = 2, refused = 3 };

struct Join {
  static constexpr Kind kKind = Kind::join;
  std::string build_id;
  std::string host;  // the name by which the job knows it
  std::int32_t slots = 1;
  std::vector<std::string> labels = {};  // base/labels.h
  HVD_MESSAGE_FIELDS(Join, build_id, host, slots, labels)
};

struct Accepted {
  static constexpr Kind kKind = Kind::accepted;
  HVD_MESSAGE_FIELDS(Accepted)
};

struct Refused {
  static constexpr Kind kKind = Kind::refused;
  std::string reason;
  bool final = false;  // coming again would not help
  HVD_MESSAGE_FIELDS(Refused, reason, final)
};

}  // namespace hvd::join_link
