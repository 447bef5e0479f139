// What travels through the pipeline: a rank's Request, the coordinator's Response to what all ranks
// requested, and the Entry that stays with the rank and knows the memory. Values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/types.h>

#include "base/status.h"
#include "runtime/core/failure.h"

namespace hvd::runtime {

using Kind = Collective;

std::string_view kind_name(Kind kind);                           // "allreduce"
std::string_view type_name(DataType type);                       // "float32"
std::string_view op_name(ReduceOp op);                           // "average"
std::string shape_text(const std::vector<std::int64_t>& shape);  // "[2, 3]"

// The process set of all ranks; it always exists.
inline constexpr int kGlobalSet = 0;

// Joins of all ranks meet, whatever they are called: World gives them this name.
inline constexpr std::string_view kJoinName = "join";

// Everything that ranks must agree about before they may run it, and the little about which they
// may differ: the first extent of allgather and alltoall.
struct Request {
  std::string name;
  Kind kind = Kind::allreduce;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  // of the world, not of the set
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<std::int64_t> shape;
  bool on_host = true;  // else on a CUDA device, whichever
  Compression compression = Compression::none;
  int process_set = kGlobalSet;  // names of different sets do not meet
  // Tensors of one group are run together or not at all: none before all are ready. Empty: alone.
  std::string group = {};
  int group_size = 0;
  std::vector<int> ranks = {};  // add_process_set: its members, ascending

  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type); }
  friend bool operator==(const Request&, const Request&) = default;
};

// Whether they are equal, but for their names.
bool asks_for_the_same(const Request& one, const Request& another);

// ok, or what of it can never be right, on any rank of a world of this size.
// Whether there can be memory of this shape, `times` over.
Status check_shape(const std::vector<std::int64_t>& shape, DataType type, int times = 1);
Status check_request(const Request& request, int world_size);

// How often a rank has asked for a tensor: in full, or by the id under which all know it.
struct AskedCounts {
  std::uint64_t in_full = 0;
  std::uint64_t by_id = 0;
};

// One tensor of a Response: what the ranks agreed about.
struct ResponseTensor {
  static constexpr std::uint64_t kNotCached = UINT64_MAX;
  Request request;
  // allgather, alltoall: the first extent of each rank of the set, in the set's order (0 of those
  // who have joined); else empty.
  std::vector<std::int64_t> first_extents = {};
  // The id under which this rank's cache keeps it, or kept it (negotiation/response_cache.h).
  std::uint64_t cache_id = kNotCached;
  friend bool operator==(const ResponseTensor&, const ResponseTensor&) = default;
};
// One that the cache keeps is the same object in every response that runs it.
using SharedTensor = std::shared_ptr<const ResponseTensor>;

// What it moves: of allgather and alltoall the rows of all ranks.
std::size_t bytes_of(const ResponseTensor& tensor);

// What the ranks of a process set run next: these tensors in one go, or nothing but the delivery of
// `error`. One total order of responses for all ranks of the world, whatever their sets.
struct Response {
  Kind kind = Kind::allreduce;
  int process_set = kGlobalSet;
  std::vector<SharedTensor> tensors;
  std::vector<int> joined = {};  // ranks of the set that have no entries, and give neutral elements
  int last_joined = -1;          // join: the rank that came last
  int new_set = -1;              // add_process_set: its number
  Status error;
  // Inside hosts and between them, not in one ring of all; where there are several ranks on several
  // hosts. Of allreduce and allgather.
  bool hierarchical = false;
  std::uint64_t number = 0;  // the place in the total order, from 1; given by the negotiator
  std::int64_t decided = 0;  // for the trace, when this rank heard of it; given by the executor
  const Request& request() const { return tensors.front()->request; }  // of the first tensor
};

// What came of an entry.
struct Outcome {
  Failure failure;
  void* output = nullptr;                // where it lies: Entry::output, or what was allocated
  std::vector<std::int64_t> shape = {};  // of the output
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
  // As if it were a new one, but it keeps its memory.
  void clear() {
    if (!failure.ok()) failure = {};
    output = nullptr;
    shape.clear();
    received_splits.clear();
    contributors = 0;
    last_joined = process_set = -1;
  }
};

// Called exactly once, from a thread of the world or one that helps it. It must not block.
using Callback = std::function<void(const Outcome&)>;
// Makes room for an output whose shape only the ranks together know; null: there is none. Called
// where the operation runs, at most once.
using Allocate = std::function<void*(const std::vector<std::int64_t>& shape)>;

// What the trace wants to know of an entry; kept by the tensor queue. Nanoseconds of Clock; 0: not
// yet.
struct Course {
  std::uint64_t order = 0;  // of all entries of this rank
  std::int64_t enqueued = 0;
  std::int64_t asked = 0;    // the negotiation heard of it
  std::int64_t decided = 0;  // all ranks are ready
  std::int64_t begun = 0;    // its batch is run
};

struct Entry {
  Request request;
  const void* input = nullptr;
  void* output = nullptr;  // may be the input; unused if `allocate` is set
  Callback done;
  Allocate allocate = {};                  // allgather, alltoall, reducescatter
  std::vector<std::int64_t> splits = {};   // alltoall: rows for each rank of the set; empty: even
  std::shared_ptr<ReadyEvent> ready = {};  // null: it is ready
  // `done` does no more than to wake who waits: a thread that waits for something else, and holds
  // locks of the program, may call it.
  bool done_wakes_only = false;
  Device device = {};
  Course course = {};

  // Nothing of the program is called but `done`, and that only wakes.
  bool is_plain() const { return done_wakes_only && !allocate && !ready; }
};

// The entries of a batch, in the order of its tensors; they lie elsewhere.
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
  // NOLINTNEXTLINE(google-explicit-constructor): of those that lie side by side
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
