// Which world a worker belongs to now, and which one next: what it makes of the world documents
// that it is told, of its world's failure and of commits. Pure, a value for one thread.
//
// Effective worlds are in force as soon as they are heard of, and end what is in flight; proposed
// ones only when all members went over to them at a commit. A joining worker waits for an effective
// one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/protocol/world_document.h"

namespace hvd::worker {

class WorldFollower {
 public:
  explicit WorldFollower(std::uint64_t incarnation) : incarnation_(incarnation) {}

  // A document, in whatever order; of old or known ones nothing follows. Returns true if it ends
  // the world that this worker is in.
  bool hear(WorldDocument document);
  // All members went over to this world at a commit. After the last one (WorldDocument::last) this
  // worker is out, whatever it hears.
  void committed(WorldDocument document);
  // The hvdrun that proposed a world is gone: no other would bring its members together.
  void forget_proposal() { proposed_.reset(); }
  // This worker begins to connect with the members of next().
  void entered(std::uint64_t generation) { entered_ = generation; }

  // The newest effective world, if it is newer than the one entered, this worker is in it, and a
  // world follows at all (WorldDocument::last).
  const WorldDocument* next() const;
  // It was a member, and the newest effective world does without it, or none follows.
  bool is_out() const;
  // The world that rank 0 takes into force at a commit: the newest proposal, unless it is older
  // than the world entered, or has the same members and is not the last.
  const WorldDocument* proposed() const;
  std::uint64_t entered() const { return entered_; }  // 0: none yet

 private:
  bool contains(const WorldDocument& document) const;

  std::uint64_t incarnation_;
  std::uint64_t entered_ = 0;
  std::optional<WorldDocument> effective_;
  std::optional<WorldDocument> proposed_;
  bool has_left_ = false;  // at the last commit
};

// The members of `before` that are not in `after`, in the order of their ranks; they point into
// `before`.
std::vector<const WorldMember*> members_lost(const WorldDocument& before,
                                             const WorldDocument& after);

// " without rank 1 on b#0, with 2 new workers". At most six of those that are lost are
// named.
std::string change_text(const WorldDocument& before, const WorldDocument& after);

}  // namespace hvd::worker
