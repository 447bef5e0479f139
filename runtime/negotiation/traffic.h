// What goes up and down the control tree (control_tree.h), as values; messages.h makes bytes of it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/core/request.h"
#include "runtime/negotiation/interval_set.h"
#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime {

// What a rank asks for: what it was told to run before, or something in full.
struct Wanted {
  SharedTensor as_before;
  std::unique_ptr<Request> in_full;  // if it is nothing from before
};

// Some ranks ask for what was agreed before, each for all of these.
struct Known {
  RankSet ranks;
  IntervalSet ids;
  friend bool operator==(const Known&, const Known&) = default;
};

// Some ranks ask for the same, in full.
struct Asked {
  RankSet ranks;
  Request request;                               // is_ragged(): its first extent is 0 ...
  std::vector<std::int64_t> first_extents = {};  // ... and these are those of `ranks`, ascending
  friend bool operator==(const Asked&, const Asked&) = default;
};

// What a rank asked for last, for those who wonder why it does not come.
struct LastWord {
  int rank = 0;
  std::string tensor;  // empty: nothing yet
  std::chrono::milliseconds ago{0};
  friend bool operator==(const LastWord&, const LastWord&) = default;
};

// From a subtree to its parent. A rank's joining and leaving come after what it asked for before.
struct Upward {
  std::vector<Known> known;
  std::vector<Asked> asked;
  RankSet joined;
  RankSet left;
  std::vector<LastWord> last_words;
  bool empty() const {
    return known.empty() && asked.empty() && joined.empty() && left.empty() && last_words.empty();
  }
  friend bool operator==(const Upward&, const Upward&) = default;
};

// A Response as it travels: what all ranks have in their caches is an id.
struct Decision {
  struct Tensor {
    std::optional<CacheId> id;
    std::shared_ptr<const ResponseTensor> whole;  // if there is no id
  };
  Kind kind = Kind::allreduce;
  int process_set = kGlobalSet;
  std::vector<Tensor> tensors;
  std::vector<int> joined;
  int last_joined = -1;
  int new_set = -1;
  Status error;
  // Ids that this response drives out of the caches, but whose tensors are decided already, and
  // only wait in line: nobody needs to ask for them again.
  IntervalSet settled;
  bool hierarchical = false;  // Response::hierarchical
  // What is agreed here goes into the caches, and ids are what is known from now on; else all is
  // asked for in full until a decision says otherwise.
  bool caching = true;
};

// From the root to all.
struct Downward {
  std::vector<Decision> decisions;
  bool pass_at_once = false;  // somebody has left: the root needs to know of every single request
  bool goodbye = false;       // all have left
  bool empty() const { return decisions.empty() && !pass_at_once && !goodbye; }
};

}  // namespace hvd::runtime
