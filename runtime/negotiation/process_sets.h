// Which process sets there are: a value that every rank keeps, and that changes by responses only,
// so it is the same on all at the same place in their order. Numbers are never used again: who
// hears of a lower one than was given out last, and does not find it, knows that it was removed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/core/request.h"
#include "runtime/negotiation/interval_set.h"

namespace hvd::runtime {

class ProcessSets {
 public:
  explicit ProcessSets(int world_size);
  // With these ranks of each set beside the one of all, numbered from 1 in their order; the error
  // names the one that cannot be.
  static Result<ProcessSets> of(const std::vector<std::vector<int>>& sets, int world_size);
  // Those of an earlier world, with their numbers, and the number of the next one. Several may have
  // come to consist of the same ranks.
  static Result<ProcessSets> restored(const std::map<int, std::vector<int>>& sets, int next,
                                      int world_size);

  bool contains(int id) const { return sets_.contains(id); }
  bool was_removed(int id) const { return id > kGlobalSet && id < next_ && !contains(id); }
  // Of a set that there is.
  const RankSet& members(int id) const { return sets_.at(id); }
  const std::map<int, RankSet>& all() const { return sets_; }
  std::optional<int> find(const RankSet& members) const;

  // ok, or why the request cannot be granted.
  Status check_add(const Request& request) const;
  Status check_remove(const Request& request) const;
  Status check_exists(int id) const;
  // ok, or why this rank may not ask for something in this set.
  Status check_member(int id, int rank) const;

  // What number the next one will have.
  int next() const { return next_; }
  void add(const RankSet& members) { sets_.emplace(next_++, members); }
  void remove(int id) { sets_.erase(id); }

 private:
  std::map<int, RankSet> sets_;
  int next_ = kGlobalSet + 1;
};

// "0 to 3, 7"
std::string ranks_text(const RankSet& ranks);
// The rank's place among the members; it must be one.
int position_in(const RankSet& members, int rank);

// The set whose members negotiate about the request: creating and removing sets concerns all.
inline int negotiated_in(const Request& request) {
  return request.kind == Kind::remove_process_set ? kGlobalSet : request.process_set;
}

}  // namespace hvd::runtime
