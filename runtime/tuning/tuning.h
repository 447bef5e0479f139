// The tuning of one world: rank 0's controller shows it what is going to be run, and it says when
// other parameters are to hold. Owned by the controller; open() before the control loop starts, the
// rest for whoever has its turn.
#pragma once

#include <optional>

#include "runtime/tuning/autotuner.h"
#include "runtime/tuning/step_meter.h"
#include "runtime/tuning/tuning_log.h"

namespace hvd::runtime {

class Tuning {
 public:
  Tuning(const TuningOptions& options, const Parameters& defaults);
  Status open() { return log_.open(path_); }
  // `pending`: how long something has been in flight on this rank so far. The result: what holds
  // from now on, if it is something else.
  std::optional<Parameters> note(const Response& response, Duration pending);

 private:
  std::string path_;
  StepMeter meter_;
  Autotuner tuner_;
  TuningLog log_;
  long samples_ = 0;
  long watched_ = 0;  // samples since it has settled
};

}  // namespace hvd::runtime
