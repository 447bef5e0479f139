// Cuts what rank 0 runs into samples: some steps of training, with their bytes and the time during
// which something was in flight on this rank. What a program does between its steps (the forward
// pass, loading data, a validation without us) is not in that time, and so does not distort it;
// computing behind which we hide is, but is the same whatever the parameters are.
//
// A step ends when the tensor with which it began comes again. A sample is so many steps, but at
// least kShortest of time, since less is noise. A program that gives its tensors new names every
// time has no steps that could be counted: then kLongest without a return is a sample.
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
  int steps = 0;  // 0: they cannot be told
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

  // This is going to be run; `pending` is how long something has been in flight so far, in all.
  std::optional<Sample> note(const Response& response, Duration pending);
  // The parameters have changed: what is in flight, and the first whole step after it, do not
  // count.
  void restart();

 private:
  enum class Phase { looking, settling, measuring };
  void begin(Duration pending);

  int steps_per_sample_;
  Phase phase_ = Phase::looking;
  TensorKey anchor_;     // with which steps begin
  Duration seen_at_{};   // the anchor, last
  Duration began_at_{};  // the sample
  Sample sample_;
};

}  // namespace hvd::runtime
