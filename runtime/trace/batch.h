// Batches that have ended, as the timeline's frames carry them: encoded on the rank that ran them,
// where every nanosecond counts, and decoded on rank 0, by the thread that writes the file.
//
// The same tensors come again and again. So what a tensor is called and what it is stands once
// before all batches, under a label; in a batch each has twelve bytes, its label and two times as
// their distance from the batch's end. What does not fit into them follows behind the last one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/wire.h"
#include "runtime/core/activity.h"
#include "runtime/core/request.h"
#include "runtime/negotiation/interval_set.h"

namespace hvd::runtime::trace {

struct Batch {
  struct What {
    std::string name;
    Kind kind = Kind::allreduce;
    DataType type = DataType::uint8;
    std::vector<std::int64_t> shape;
  };
  struct Tensor {
    std::shared_ptr<const What> what;
    Nanoseconds enqueued = 0;
    Nanoseconds asked = 0;
    std::string error;
  };
  std::uint64_t number = 0;  // of the response, the same on all ranks; 0: never decided
  int process_set = kGlobalSet;
  int set_size = 0;
  bool unfinished = false;  // the recording ended before it did
  Nanoseconds decided = 0;  // 0: never
  Nanoseconds begun = 0;    // 0: never
  Nanoseconds ended = 0;
  std::string operation;  // "gloo allreduce"; empty: none was needed
  std::vector<Step> steps;
  std::vector<Tensor> tensors;
};

class BatchWriter {
 public:
  // Everything but the tensors, each of which must follow.
  void begin(const Batch& batch, std::size_t tensors);
  // `cache_id`: ResponseTensor. Not more often than begin() was told.
  void add(const Request& request, std::uint64_t cache_id, Nanoseconds enqueued, Nanoseconds asked,
           std::string_view error);

  std::size_t size() const { return labels_.size() + batches_.size(); }
  std::size_t size_of_batches() const { return batches_.size(); }
  std::uint32_t tensors() const { return tensors_; }
  // All of it; afterwards it is empty.
  std::string take();

 private:
  std::uint32_t label_of(const Request& request, std::uint64_t cache_id);
  std::uint32_t new_label(const Request& request, std::uint64_t cache_id);

  std::string labels_;
  std::string batches_;
  std::uint32_t label_count_ = 0;
  std::uint32_t unnamed_ = 0;  // labels of what the cache does not keep
  IntervalSet known_;          // cache ids that have a label
  // Some neighbours among them: as a rule the next one that is asked for is there, too.
  IntervalSet::Interval neighbours_;
  std::uint32_t tensors_ = 0;
  Nanoseconds ended_ = 0;  // of the batch that was begun last
  std::size_t next_ = 0;   // where its next tensor belongs
};

// Reads what a BatchWriter has written; trusts nothing.
class BatchReader {
 public:
  // The bytes must stay.
  explicit BatchReader(std::string_view bytes);
  // The next one; nothing if there is none, or if the bytes are no batch.
  std::optional<Batch> next();
  // Everything was what it should be.
  bool ended_well() const { return !broken_ && in_.at_end(); }

 private:
  bool read_label();
  bool read_tensors(Batch& batch);

  WireReader in_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const Batch::What>> labels_;
  bool broken_ = false;
};

}  // namespace hvd::runtime::trace
