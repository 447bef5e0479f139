// The worlds of a job: the one in force, and those that are proposed and may still take effect at a
// commit. Pure.
//
// A value for one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/protocol/world_document.h"
#include "driver/job/job_io.h"
#include "driver/job/world_plan.h"

namespace hvd::driver {

// The incarnations in a world, ascending, whatever their ranks.
std::vector<Incarnation> membership(const WorldDocument& world);
bool has_member(const WorldDocument& world, Incarnation incarnation);

class Worlds {
 public:
  explicit Worlds(std::string job_id) { in_force_.job_id = std::move(job_id); }

  // Without members before there is one.
  const WorldDocument& in_force() const { return in_force_; }
  // By generation.
  const std::map<std::uint64_t, WorldDocument>& proposed() const { return proposed_; }
  // The newest generation that was made.
  std::uint64_t generation() const { return generation_; }

  // The only world of a job whose world does not change; addresses may follow.
  void seat(std::vector<WorldMember> members) { in_force_.members = std::move(members); }
  void begin_first_generation() { in_force_.generation = ++generation_; }
  void set_address(std::size_t rank, const std::string& address) {
    in_force_.members[rank].address = address;
  }

  // A world of the next generation. It counts when one of the next two has it.
  WorldDocument plan_next(WorldState state, const std::vector<Incarnation>& gone,
                          const std::vector<Newcomer>& newcomers);
  void propose(WorldDocument world);
  // Returns the world that was in force before.
  WorldDocument take_into_force(WorldDocument world);
  void withdraw_proposed();
  // Takes this one out of those proposed, and drops the older ones.
  std::optional<WorldDocument> take_proposed(std::uint64_t generation);

  // The newest proposed world has other members than the one in force. One with the same members
  // withdraws others.
  bool is_change_proposed() const;
  bool is_proposed(Incarnation incarnation) const;
  // A last world (WorldDocument::last) that was proposed and withdrawn. Members may have committed
  // to it before they heard of that.
  bool is_withdrawn_last(std::uint64_t generation) const {
    return withdrawn_last_.count(generation) != 0;
  }
  // Members of the world in force that every proposed world has, too; ascending.
  std::vector<Incarnation> in_all_proposed() const;

 private:
  std::uint64_t generation_ = 0;
  WorldDocument in_force_;
  std::map<std::uint64_t, WorldDocument> proposed_;
  std::set<std::uint64_t> withdrawn_last_;
};

}  // namespace hvd::driver
