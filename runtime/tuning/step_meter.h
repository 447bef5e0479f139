// Cuts the batches of rank 0 into samples: some steps of training, with their bytes and the time
// during which operations were in flight on this rank. Work of the program between its steps (the
// forward pass, loading data, a validation) is not in that time, and so does not distort it;
// computation that overlaps with communication is, but is the same whatever the parameters are.
//
// A step ends when the tensor with which it began appears again. A sample is a number of steps, but
// at least kShortest of time, since shorter ones are noisy. A program that gives its tensors new
// names every time has no steps that could be counted: then kLongest without a repetition is a
// sample.
//
// A pure state machine; for one thread.
#pragma once

#include <cstddef>
#include <optional>

#include "base/clock.h"
#include "runtime/core/request.h"
#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime {

struct Sample {
  int steps = 0;  // 0: no steps could be recognised
  std::size_t bytes = 0;
  std::size_t tensors = 0;
  std::size_t largest_batch = 0;  // bytes
  bool has_allreduce = false;
  bool has_allgather = false;
  Duration time{};

  double seconds() const { return std::chrono::duration<double>(time).count(); }
  double bytes_per_second() const { return static_cast<double>(bytes) / seconds(); }
};

class StepMeter {
 public:
  static constexpr std::chrono::milliseconds kShortest{20};
  static constexpr std::chrono::seconds kLongest{1};

  explicit StepMeter(int steps_per_sample) : steps_per_sample_(steps_per_sample) {}

  // This response is about to run; `pending` is the total time during which operations were in
  // flight so far. Returns a sample that has just become complete.
  std::optional<Sample> note(const Response& response, Duration pending);
  // The parameters have changed: batches in flight, and the first whole step after them, do not
  // count.
  void restart();

 private:
  enum class Phase { looking, settling, measuring };
  void begin(Duration pending);

  int steps_per_sample_;
  Phase phase_ = Phase::looking;
  TensorKey anchor_;     // the tensor with which steps begin
  Duration seen_at_{};   // when the anchor appeared last
  Duration began_at_{};  // when the sample began
  Sample sample_;
};

}  // namespace hvd::runtime
