// Groups of tensors that run together or not at all. Each rank requests all tensors of a group at
// once, so every one of them will be decided sooner or later; here they wait for each other. If one
// of them fails, all do.
//
// A group is identified by its process set, name and size: ranks that differ in these have
// requested the tensor in different groups, which is an error of both groups. A pure value; for one
// thread.
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
  // A tensor of these groups (one group, if the ranks agree) is decided. Returns the tensors that
  // may run now: none, if it waits for others; the whole group, in the order of the names, if it
  // was the last; or it and all that waited, as errors, if one of the group has failed.
  std::vector<ReadyTensor> decided(const std::vector<GroupKey>& keys, ReadyTensor tensor);
  // How far a group has come.
  struct Progress {
    int decided = 0;
    bool disputed = false;  // ranks requested one of its tensors in another group
  };
  Progress progress(const GroupKey& key) const;
  // Fails a group that cannot complete: returns the waiting tensors, as errors. For good: all that
  // are decided later fail, too.
  std::vector<ReadyTensor> fail(const GroupKey& key, const Status& why);
  std::vector<ReadyTensor> fail_for_good(const GroupKey& key, const Status& why);
  void set_removed(int process_set);

 private:
  struct Group {
    int decided = 0;
    bool disputed = false;
    bool failed_for_good = false;
    Status error;
    std::vector<ReadyTensor> waiting;
  };
  std::map<GroupKey, Group> groups_;
};

}  // namespace hvd::runtime
