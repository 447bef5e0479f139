// The introductions that the members of a world exchange before they are connected: the addresses
// of each member, and the settings on which all must agree. Without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/versions.h"
#include "runtime/core/world_spec.h"

namespace hvd::runtime {

// In all versions it begins with the version and the build, so that a member of another version is
// recognised before anything else of it is read.
struct Introduction {
  std::uint32_t version = wire_versions().members;
  std::string build{build_id()};
  std::string control;  // port for its children in the control tree; empty: it has none
  std::string data;     // address of its data connections
  std::string sets;     // sets_text()
  std::string host;     // address for ranks of its host; ShmRendezvous::name()
  CpuOperations cpu_operations = CpuOperations::gloo;

  std::string encode() const;
  // If it is of another version than ours, nothing but the version and the build. data_loss:
  // it is not one; the error names the rank.
  static Result<Introduction> decode(std::string_view bytes, int rank);
};

// The process sets of a member: equal texts mean that two ranks were configured with equal ones.
// `possible` says whether such sets can be.
std::string sets_text(const WorldSpec& spec, const Status& possible);

// The introductions of all members, by rank. An error says which rank cannot work with this one, or
// with rank 0: permission_denied or failed_precondition for another version, invalid_argument for
// other process sets. All ranks compare the same texts, so all of them fail or none does.
Result<std::vector<Introduction>> read_introductions(const WorldSpec& spec,
                                                     const std::vector<std::string>& blobs);

}  // namespace hvd::runtime
