// The world as everybody is told it: its members, their order and their hosts. The driver hands it
// to the agents, and they to their workers, in some ten bytes for each host, since each host gets
// all of it. In the rendezvous (scope "world", key "current") and in the journal it is JSON, which
// a person and other programs can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/commit_id.h"
#include "base/status.h"

namespace hvd {

// Ranks are host-major. `local_rank` counts the members of one host, `cross_rank` the hosts that
// have a member with this local rank (heterogeneous hosts thus differ in cross_size).
struct WorldMember {
  int rank = 0;
  std::string host;
  int slot = 0;
  std::uint64_t incarnation = 0;
  std::string address;  // where this member's host is reached by the others: an IP address
  int local_rank = 0;
  int local_size = 0;
  int cross_rank = 0;
  int cross_size = 0;

  std::string worker() const { return host + "#" + std::to_string(slot); }
  // "rank 2 on b#1", by which messages name it.
  std::string ranked() const { return "rank " + std::to_string(rank) + " on " + worker(); }
  friend bool operator==(const WorldMember&, const WorldMember&) = default;
};

// Fills local and cross ranks and sizes of members that are in the order of their ranks.
void assign_local_and_cross_ranks(std::vector<WorldMember>& members);

enum class WorldState { proposed, effective };

// A job has no more workers, and a document that says so is refused before memory is asked for.
inline constexpr std::size_t kMostMembers = 100'000;

struct WorldDocument {
  std::string job_id;
  std::uint64_t generation = 0;
  WorldState state = WorldState::effective;
  std::vector<WorldMember> members;  // members[r].rank == r
  // A proposed one: the members of the world before keep the state at this commit and leave, and no
  // world follows.
  bool last = false;

  std::string to_json() const;
  // As bytes: ranks follow from the order, and local and cross ranks as
  // assign_local_and_cross_ranks() gives them.
  std::string encode() const;
  // Checks everything that a reader relies on: slots and incarnations are unique, and there are
  // members, at most kMostMembers. data_loss.
  static Result<WorldDocument> decode(std::string_view bytes);
  // Null: this worker is no member.
  const WorldMember* find(std::uint64_t incarnation) const;

  friend bool operator==(const WorldDocument&, const WorldDocument&) = default;
};

inline constexpr const char* kWorldScope = "world";
inline constexpr const char* kCurrentWorldKey = "current";    // the newest effective one
inline constexpr const char* kProposedWorldKey = "proposed";  // the newest proposed one, if any was
// The data that the members of one world exchange stands in scopes "world.GENERATION.SOMETHING",
// which are dropped when a newer world is in force.
inline constexpr const char* kWorldScopePrefix = "world.";
// There: where this rank is, "rank-3"; the process sets, of rank 0; the rank that has given up.
inline constexpr const char* kRankKeyPrefix = "rank-";
inline constexpr const char* kSetsKey = "sets";
inline constexpr const char* kGivenUpKey = "given-up";

}  // namespace hvd
