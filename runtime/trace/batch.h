// Batches that have ended, as the timeline's frames carry them: encoded on the rank that ran them,
// where every nanosecond counts, and decoded on rank 0, by the thread that writes the file.
//
// The same tensors appear again and again. So a tensor's name and type are written once, before all
// batches, under a label; in a batch each tensor takes twelve bytes, its label and two times as
// distances from the batch's end. Values that do not fit are appended behind the last batch.
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
  struct TensorInfo {
    std::string name;
    Kind kind = Kind::allreduce;
    DataType type = DataType::uint8;
    std::vector<std::int64_t> shape;
  };
  struct Tensor {
    std::shared_ptr<const TensorInfo> info;
    Nanoseconds enqueued = 0;
    Nanoseconds asked = 0;
    std::string error;
  };
  std::uint64_t number = 0;  // of the response, the same on all ranks; 0: never decided
  int process_set = kGlobalSet;
  int set_size = 0;
  bool unfinished = false;  // the recording ended before the batch did
  Nanoseconds decided = 0;  // 0: never
  Nanoseconds begun = 0;    // 0: never
  Nanoseconds ended = 0;
  std::string operation;  // "gloo allreduce"; empty: no operation was needed
  std::vector<Step> steps;
  std::vector<Tensor> tensors;
};

class BatchWriter {
 public:
  // Writes a batch without its tensors; add() must follow for each of them.
  void begin(const Batch& batch, std::size_t tensors);
  // `cache_id`: see ResponseTensor. Called as many times as begin() was told.
  void add(const Request& request, std::uint64_t cache_id, Nanoseconds enqueued, Nanoseconds asked,
           std::string_view error);

  std::size_t size() const { return labels_.size() + batches_.size(); }
  std::size_t size_of_batches() const { return batches_.size(); }
  std::uint32_t tensors() const { return tensors_; }
  // Returns all bytes; afterwards the writer is empty.
  std::string take();

 private:
  std::uint32_t label_of(const Request& request, std::uint64_t cache_id);
  std::uint32_t new_label(const Request& request, std::uint64_t cache_id);

  std::string labels_;
  std::string batches_;
  std::uint32_t label_count_ = 0;
  std::uint32_t unnamed_ = 0;  // number of labels of tensors that are not cached
  IntervalSet known_;          // cache ids that have a label
  // An interval of them: usually the next id that is looked up is in it, too.
  IntervalSet::Interval neighbours_;
  std::uint32_t tensors_ = 0;
  Nanoseconds ended_ = 0;  // of the last batch
  std::size_t next_ = 0;   // where its next tensor is written
};

// Reads what a BatchWriter has written; validates everything.
class BatchReader {
 public:
  // `bytes` must outlive the reader.
  explicit BatchReader(std::string_view bytes);
  // The next batch; nothing at the end, or if the bytes are invalid.
  std::optional<Batch> next();
  // All bytes were read and were valid.
  bool ended_well() const { return !broken_ && in_.at_end(); }

 private:
  bool read_label();
  bool read_tensors(Batch& batch);

  WireReader in_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const Batch::TensorInfo>> labels_;
  bool broken_ = false;
};

}  // namespace hvd::runtime::trace
