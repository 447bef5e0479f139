// Tensors that run together or not at all. Each rank asks for all tensors of a group at once, so
// every one of them is going to be decided sooner or later; here they wait for each other. If one
// of them fails, all do.
//
// A group is known by its process set, name and size: ranks that differ in them disagree about the
// tensor, and that is an error of both groups. A pure value; for one thread.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "runtime/core/request.h"
#include "runtime/negotiation/fusion.h"

namespace hvd::runtime {

struct GroupKey {
  int process_set = kGlobalSet;
  std::string name;
  int size = 0;
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
  friend bool operator<(const GroupKey& a, const GroupKey& b) {
    return std::tie(a.process_set, a.name, a.size) < std::tie(b.process_set, b.name, b.size);
  }
};

class Groups {
 public:
  // A tensor of these groups (one, if the ranks agree) is decided. Returns what may go now:
  // nothing, if it waits for others; the whole group, in the order of the names, if it was the
  // last; or with it all that waited, as errors, if it or another one of the group has failed.
  std::vector<Ready> decided(const std::vector<GroupKey>& keys, Ready tensor);
  // How far a group has come.
  struct Progress {
    int decided = 0;
    bool disputed = false;  // ranks had a tensor of it in another group
  };
  Progress progress(const GroupKey& key) const;
  // A group that will never be complete, or all of a process set: what waits in them, as errors.
  std::vector<Ready> fail(const GroupKey& key, const Status& why);
  std::vector<Ready> fail(int process_set, const Status& why);
  void set_removed(int process_set);

 private:
  struct Group {
    int decided = 0;
    bool disputed = false;
    Status error;
    std::vector<Ready> waiting;
  };
  std::map<GroupKey, Group> groups_;
};

}  // namespace hvd::runtime
