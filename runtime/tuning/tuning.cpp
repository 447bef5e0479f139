#include "runtime/tuning/tuning.h"

#include <algorithm>
#include <bit>

#include "base/log.h"

namespace hvd::runtime {

Tuning::Tuning(const TuningOptions& options, const Parameters& defaults)
    : path_(options.log_path),
      meter_(std::max(1, options.steps_per_sample)),
      tuner_(options, defaults) {}

std::optional<Parameters> Tuning::note(const Response& response, Duration pending) {
  const auto sample = meter_.note(response, pending);
  if (!sample) return std::nullopt;
  const bool was_watching = tuner_.is_watching();
  const auto step = tuner_.take(*sample);
  ++samples_;
  watched_ = was_watching && tuner_.is_watching() ? watched_ + 1 : 0;
  // A job may run for weeks without a search: then only the 1st, 2nd, 4th, 8th... sample is logged.
  if (watched_ == 0 || std::has_single_bit(static_cast<unsigned long>(watched_))) {
    log_.write(samples_, *sample, step);
  }
  if (was_watching != tuner_.is_watching()) HVD_LOG(info, "autotune: " << step.decision);
  if (!step.changed) return std::nullopt;
  meter_.restart();
  return tuner_.parameters();
}

}  // namespace hvd::runtime
