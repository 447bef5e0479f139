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

namespace hvd::driver {

struct Newcomer {
  std::string host;
  int slot = 0;
  Incarnation incarnation = 0;
  std::string address;
};

// The next world as a pure function of the last one and of arrivals and departures. The same for a
// loss as for a planned change; driver/job/staffing.h decides which workers may come and which must
// go.
//
//   - Ranks are host-major. Hosts of the last world keep their order, hosts that are new come last.
//   - Survivors keep their order. A newcomer in the slot of a worker that goes takes its place;
//     any other stands among the members of its host where its slot belongs.
//   - Rank 0 is always a survivor, since it leads from the first moment on: of the first host that
//     has one, which comes first for that if it was not. Only a world without survivors is led by a
//     newcomer.
//
// `previous` is ordered by rank, and host-major. New hosts come in the order in which `newcomers`
// first names them. No newcomer stands in the slot of a survivor. Linear in the size of the world,
// but for hosts of very many slots.
std::vector<WorldMember> plan_world(const std::vector<WorldMember>& previous,
                                    const std::vector<Incarnation>& gone,
                                    const std::vector<Newcomer>& newcomers);

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
