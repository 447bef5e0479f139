// The process sets of an elastic job as what they are: workers, whichever ranks they have in a
// world. The same on all ranks of a world: rank 0 hands its own out before a world is formed. A
// value, for one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/world_document.h"
#include "base/status.h"
#include "runtime/core/world_spec.h"

namespace hvd::worker {

class SetTable {
 public:
  // No world has been entered yet.
  bool empty() const { return next_ == 0; }
  // The sets that exist from the start, of these ranks of `world`. Ranks that it does not have are
  // an error, which names the set.
  static Result<SetTable> of(const std::vector<std::vector<int>>& sets, bool shrink,
                             const WorldDocument& world);

  // A world is entered: the members of a set that are not in it are lost.
  void enter(const WorldDocument& world);
  // In that world, the sets that have lost no member, or shrink.
  std::map<int, runtime::RestoredSet> ranks() const;
  int next() const { return next_; }

  // In the order of the world.
  void added(int id, const std::vector<int>& ranks, bool by_members = false);
  void let_shrink(int id);
  void removed(int id) { sets_.erase(id); }
  // The members of it that are gone, as text; nothing if it is whole, or there is no such set.
  std::optional<std::string> lost(int id) const;
  // One of these ranks that was made in an earlier world, by all ranks or by its members alone, and
  // not taken up in this one before.
  std::optional<int> take_up(const std::vector<int>& ranks, bool by_members = false);

  std::string encode() const;
  static Result<SetTable> decode(std::string_view bytes);

 private:
  struct Set {
    std::vector<std::uint64_t> members;  // incarnations
    bool by_members = false;             // they alone have added it, and remove it
    bool shrinks = false;
    std::string lost;     // its lost members, as text
    bool is_old = false;  // of an earlier world
  };
  std::optional<std::vector<int>> ranks_of(const Set& set) const;

  std::map<int, Set> sets_;
  int next_ = 0;
  WorldDocument world_;
};

}  // namespace hvd::worker
