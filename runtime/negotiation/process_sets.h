// The process sets of a world: a value that every rank keeps and that changes by responses only, so
// it is the same on all ranks at the same place in their order. Numbers are never reused: a number
// below next() that is not found belongs to a set that was removed. A set is added, and later
// removed, by all ranks of the world, or by its members alone; all ranks know of both.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/core/request.h"
#include "runtime/core/world_spec.h"
#include "runtime/negotiation/interval_set.h"

namespace hvd::runtime {

class ProcessSets {
 public:
  explicit ProcessSets(int world_size);
  // These sets beside the global one, numbered from 1 in their order; the error names the first
  // invalid one.
  static Result<ProcessSets> of(const std::vector<std::vector<int>>& sets, int world_size);
  // The sets of an earlier world, with their numbers, and the number of the next one. Several may
  // have come to consist of the same ranks.
  static Result<ProcessSets> restored(const std::map<int, RestoredSet>& sets, int next,
                                      int world_size);

  bool contains(int id) const { return sets_.contains(id); }
  bool was_removed(int id) const { return id > kGlobalSet && id < next_ && !contains(id); }
  // The set must exist.
  const RankSet& members(int id) const { return sets_.at(id); }
  const std::map<int, RankSet>& all() const { return sets_; }
  // Its members alone have added it; false if it does not exist.
  bool is_by_members(int id) const { return by_members_.contains(id); }

  // ok, or the reason to refuse the request.
  Status check_add(const Request& request) const;
  Status check_remove(const Request& request) const;
  Status check_exists(int id) const;
  // ok, or the reason why this rank may not use the set.
  Status check_member(int id, int rank) const;

  // The number that the next set will get.
  int next() const { return next_; }
  void add(const RankSet& members, bool by_members = false);
  void remove(int id);

 private:
  std::map<int, RankSet> sets_;
  std::set<int> by_members_;
  int next_ = kGlobalSet + 1;
};

// "0 to 3, 7"
std::string ranks_text(const RankSet& ranks);
// The rank's position among the members; it must be one of them.
int position_in(const RankSet& members, int rank);

// The set in which the name of the request is unique: sets are created and removed in the world.
inline int negotiated_in(const Request& request) {
  return request.kind == Kind::remove_process_set ? kGlobalSet : request.process_set;
}

}  // namespace hvd::runtime
