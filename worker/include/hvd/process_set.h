// Process sets: parts of the world that have collectives of their own.
//
//     hvd::init({.process_sets = {{0, 1}, {2, 3}}});          // there from the start ...
//     hvd::init({.dynamic_process_sets = true});              // ... or when they are needed
//     const auto even = hvd::add_process_set({0, 2});         // called by all ranks of the world
//     if (even.included()) hvd::allreduce(gradients, {.process_set = even});
//     hvd::remove_process_set(even);                          // called by all ranks of the world
//     const auto pair = hvd::add_process_set_by_members({1, 2});  // called by ranks 1 and 2
//
// The set of all ranks always exists; it is what ProcessSet() means. Names of tensors are matched
// within a set, so those of different sets do not meet. A number of a set is never used again.
#pragma once

#include <vector>

#include <hvd/export.h>
#include <hvd/standard_library.h>

namespace hvd {

// In an elastic job a set consists of workers, not of ranks: in the next world it has the same
// number, and the ranks that its members have there. The fate of the set when a member is gone:
enum class LostMember {
  fail,    // whatever is asked of it throws ProcessSetError, lost_member; it can be removed
  shrink,  // it consists of the members that are left
};

// A value: the number of a set. Its questions are answered by the world of this process; they throw
// NotInitializedError before init(), and ProcessSetError (hvd/error.h) if there is no such set.
class HVD_API ProcessSet {
 public:
  ProcessSet() = default;  // of all ranks
  explicit ProcessSet(int id) : id_(id) {}

  int id() const { return id_; }
  std::vector<int> ranks() const;  // of the world, ascending
  int size() const;
  bool included() const;  // this process is a member
  int rank() const;       // its position in ranks(); throws ProcessSetError if it is not a member

  friend bool operator==(const ProcessSet&, const ProcessSet&) = default;

 private:
  int id_ = 0;
};

// Called by all ranks of the world, each with the same ranks, which may stand in any order. Block
// until all have called; the first such call of each rank meets the first of the others, and so on.
// Throw ProcessSetError if init() was not told that there will be dynamic sets, if these ranks are
// a set already (but one of an earlier world is taken up again, and shrinks if it did or if this
// call says so), or if there is no such set;
// InvalidArgumentError, which names both sides, if the ranks disagree. A call in flight in a set
// that is removed fails with ProcessSetError.
HVD_API ProcessSet add_process_set(std::vector<int> ranks,
                                   LostMember lost_member = LostMember::fail);
HVD_API void remove_process_set(const ProcessSet& process_set);

// The same, called by these ranks alone, who also remove the set alone: the others neither call nor
// wait. Members who name different ranks are not told of it: they wait for each other, which the
// warning of a stall shows. There may be several sets of the same ranks, of which all ranks have
// added at most one. In an elastic job the set is lost with a member. Throws ProcessSetError,
// not_a_member, too, on a rank that is not one of them.
HVD_API ProcessSet add_process_set_by_members(std::vector<int> ranks);

// All that exist, by number: first that of all ranks.
HVD_API std::vector<ProcessSet> process_sets();

}  // namespace hvd
