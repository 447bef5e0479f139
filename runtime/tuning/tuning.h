// The tuning of one world: rank 0's controller reports each response before it runs, and learns
// when the parameters change. Owned by the controller; open() before the control loop starts, the
// rest under the lock of the progress engine.
#pragma once

#include <optional>

#include "runtime/tuning/autotuner.h"
#include "runtime/tuning/step_meter.h"
#include "runtime/tuning/tuning_log.h"

namespace hvd::runtime {

class Tuning {
 public:
  Tuning(const TuningOptions& options, const Parameters& defaults);
  // `under_way`: the log cannot fail (tuning_log.h).
  Status open(bool under_way) { return log_.open(path_, under_way); }
  // `pending`: the total time during which operations were in flight on this rank so far. Returns
  // new parameters, if they change now.
  std::optional<Parameters> note(const Response& response, Duration pending);

 private:
  std::string path_;
  StepMeter meter_;
  Autotuner tuner_;
  TuningLog log_;
  long samples_ = 0;
  long watched_ = 0;  // samples since the last search ended
};

}  // namespace hvd::runtime
