// The values that pass through the pipeline: a rank's Request, the coordinator's Response to the
// requests of all ranks, and the Entry that stays with the rank and holds the memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/types.h>

#include "base/collective.h"
#include "base/status.h"
#include "runtime/core/failure.h"
#include "runtime/core/link_speed.h"
#include "runtime/core/sum_tree.h"

namespace hvd::runtime {

using Kind = Collective;

std::string_view type_name(DataType type);                       // "float32"
std::string_view op_name(ReduceOp op);                           // "average"
std::string shape_text(const std::vector<std::int64_t>& shape);  // "[2, 3]"

// The process set of all ranks; it always exists.
inline constexpr int kGlobalSet = 0;

// How the names begin under which hvd itself agrees on the state of an elastic program.
inline constexpr std::string_view kStateNames = "hvd.elastic.";

// Joins match each other whatever the program calls them: World gives them this name.
inline constexpr std::string_view kJoinName = "join";

// Everything that the ranks must agree on before they may run an operation, and the one thing in
// which they may differ: the first extent of allgather and alltoall.
struct Request {
  std::string name;
  Kind kind = Kind::allreduce;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  // of the world, not of the set
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<std::int64_t> shape;
  bool on_host = true;  // else on any CUDA device
  Compression compression = Compression::none;
  int process_set = kGlobalSet;  // names are local to a set
  // Tensors of one group run together or not at all: none before all are ready. Empty: no group.
  std::string group = {};
  int group_size = 0;
  // add_process_set: its members, ascending, and so for remove_process_set if they alone ask for
  // it; send_recv: the sender and the receiver.
  std::vector<int> ranks = {};
  bool by_members =
      false;  // add_process_set, remove_process_set: the other ranks do not ask for it
  // allreduce: the digest of the tree along which it adds, that of Entry::leaves; 0: of its own.
  std::uint64_t tree = 0;

  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type); }
  friend bool operator==(const Request&, const Request&) = default;
};

// Whether the ranks that it names negotiate about it, and not all members of its process set.
inline bool is_among_named_ranks(const Request& request) {
  return request.kind == Kind::send_recv || request.by_members;
}

// Whether two requests are equal in all but their names.
bool equal_except_name(const Request& one, const Request& another);

// Refuses shapes with a negative extent, and shapes whose size, `times` over, overflows.
Status check_shape(const std::vector<std::int64_t>& shape, DataType type, int times = 1);
// Refuses a request that is invalid on every rank of a world of this size.
Status check_request(const Request& request, int world_size);

// Requests that a rank has sent by cache id, or has not had to send at all, and in full.
struct CacheStats {
  std::uint64_t misses = 0;
  std::uint64_t hits = 0;
  std::uint64_t in_lanes = 0;  // those of the hits that went into their lanes
};

// One tensor of a Response: what the ranks agreed on.
struct ResponseTensor {
  static constexpr std::uint64_t kNotCached = UINT64_MAX;
  Request request;
  // allgather, alltoall: the first extent of each rank of the set, in the set's order (0 for ranks
  // that have joined); else empty.
  std::vector<std::int64_t> first_extents = {};
  // The id under which this rank's cache keeps or kept it (negotiation/response_cache.h).
  std::uint64_t cache_id = kNotCached;
  friend bool operator==(const ResponseTensor&, const ResponseTensor&) = default;
};
// A cached tensor is the same object in every response that runs it.
using SharedTensor = std::shared_ptr<const ResponseTensor>;

// The bytes that the operation moves: for allgather and alltoall the rows of all ranks.
std::size_t bytes_of(const ResponseTensor& tensor);

// A lane of the ranks of one host, in which a tensor is reduced without negotiation from its next
// request on (lane/lane.h).
struct LaneSpot {
  static constexpr int kNone = -1;
  int lane = kNone;
  std::size_t offset = 0;  // where its payloads begin; of a lane whose `room` is not 0
  std::size_t room = 0;    // for each of its payloads, in bytes; 0: they are in its heads
  friend bool operator==(const LaneSpot&, const LaneSpot&) = default;
};

// The next batch of a process set: these tensors in one operation, or only the delivery of `error`.
// There is one total order of responses for all ranks of the world, whatever their sets.
struct Response {
  Kind kind = Kind::allreduce;
  int process_set = kGlobalSet;
  std::vector<SharedTensor> tensors;
  // Ranks of the set that have joined, and contribute neutral elements.
  std::vector<int> joined = {};
  int last_joined = -1;  // join: the rank that came last
  int new_set = -1;      // add_process_set: its number
  Status error;
  // Allreduce and allgather: inside hosts and between them, not in one ring of all ranks; in worlds
  // with several ranks on several hosts.
  bool hierarchical = false;
  // As rank 0 has measured it, for the choice of an algorithm.
  LinkSpeed link_speed = {};
  // For each tensor, or empty: none of them is given a lane.
  std::vector<LaneSpot> lanes = {};
  std::uint64_t number = 0;  // position in the total order, from 1; set by the negotiator
  std::int64_t decided = 0;  // for the trace, when this rank received it; set by the executor
  const Request& request() const { return tensors.front()->request; }  // of the first tensor
};

// The result of an entry.
struct Outcome {
  Failure failure;
  void* output = nullptr;                          // Entry::output, or the allocated memory
  std::vector<std::int64_t> shape = {};            // of the output
  std::vector<std::int64_t> received_splits = {};  // alltoall: rows from each rank of the set
  int contributors = 0;                            // ranks of the set that had not joined
  int last_joined = -1;                            // join
  int process_set = -1;                            // add_process_set

  Outcome() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a failure is an outcome without results
  Outcome(Failure why) : failure(std::move(why)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Outcome(Status why) : failure(std::move(why)) {}
  bool ok() const { return failure.ok(); }
  // Resets it to a new outcome, but keeps its memory.
  void clear() {
    if (!failure.ok()) failure = {};
    output = nullptr;
    shape.clear();
    received_splits.clear();
    contributors = 0;
    last_joined = process_set = -1;
  }
};

// Called exactly once, from a thread of the world or one that drives its progress. It must not
// block.
using Callback = std::function<void(const Outcome&)>;
// Allocates an output whose shape depends on the requests of all ranks; null: out of memory. Called
// where the operation runs, at most once.
using Allocate = std::function<void*(const std::vector<std::int64_t>& shape)>;

// The times of an entry, for the trace; kept by the tensor queue. Nanoseconds of Clock; 0: not yet.
struct EntryTimes {
  std::uint64_t order = 0;  // position among all entries of this rank
  std::int64_t enqueued = 0;
  std::int64_t asked = 0;    // passed to the negotiation
  std::int64_t decided = 0;  // its response was received
  std::int64_t begun = 0;    // its batch began to run
};

struct Entry {
  Request request;
  const void* input = nullptr;
  void* output = nullptr;  // may be the input; unused if `allocate` is set
  Callback done;
  Allocate allocate = {};                  // allgather, alltoall, reducescatter
  std::vector<std::int64_t> splits = {};   // alltoall: rows for each rank of the set; empty: even
  std::shared_ptr<ReadyEvent> ready = {};  // null: the input is ready
  // `done` only wakes a waiting thread: a thread that waits for something else, and holds locks of
  // the program, may call it.
  bool done_wakes_only = false;
  Device device = {};
  EntryTimes times = {};
  // In place of an input; null: there is one. Leaves may be the output, and else do not overlap it.
  std::shared_ptr<const TreeInput> leaves = {};

  // No function of the program is called except `done`, which only wakes a thread.
  bool is_plain() const { return done_wakes_only && !allocate && !ready; }
};

// The entries of a batch, in the order of its tensors, as pointers.
class Entries {
 public:
  class Iterator {
   public:
    explicit Iterator(Entry* const* at) : at_(at) {}
    Entry& operator*() const { return **at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    Entry* const* at_;
  };

  Entries() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): the entries of a vector
  Entries(std::vector<Entry>& all) {
    for (auto& entry : all) add(entry);
  }
  void add(Entry& entry) { entries_.push_back(&entry); }
  void clear() { entries_.clear(); }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  Entry& operator[](std::size_t i) const { return *entries_[i]; }
  Entry& front() const { return *entries_.front(); }
  Iterator begin() const { return Iterator(entries_.data()); }
  Iterator end() const { return Iterator(entries_.data() + entries_.size()); }

 private:
  std::vector<Entry*> entries_;
};

}  // namespace hvd::runtime
