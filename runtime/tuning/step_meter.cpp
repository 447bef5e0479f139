#include "runtime/tuning/step_meter.h"

#include <algorithm>

namespace hvd::runtime {

void StepMeter::restart() {
  phase_ = Phase::looking;
  sample_ = {};
}

void StepMeter::begin(Duration pending) {
  phase_ = Phase::measuring;
  sample_ = {};
  began_at_ = pending;
}

std::optional<Sample> StepMeter::note(const Response& response, Duration pending) {
  if (!response.error.ok() || response.tensors.empty()) return std::nullopt;
  if (phase_ == Phase::looking) {
    anchor_ = key_of(response.request());
    seen_at_ = pending;
    phase_ = Phase::settling;
    return std::nullopt;
  }

  bool returned = false;
  std::size_t bytes = 0;
  for (const auto& tensor : response.tensors) {
    bytes += bytes_of(*tensor);
    const Request& request = tensor->request;
    returned =
        returned || (request.name == anchor_.name && negotiated_in(request) == anchor_.process_set);
  }

  sample_.bytes += bytes;
  sample_.tensors += response.tensors.size();
  sample_.largest_batch = std::max(sample_.largest_batch, bytes);
  sample_.has_allreduce = sample_.has_allreduce || response.kind == Kind::allreduce;
  sample_.has_allgather = sample_.has_allgather || response.kind == Kind::allgather;

  const bool lost = !returned && pending - seen_at_ >= kLongest;
  if (!returned && !lost) return std::nullopt;
  seen_at_ = pending;
  if (lost) anchor_ = key_of(response.request());

  if (phase_ == Phase::settling) {
    begin(pending);
    return std::nullopt;
  }

  if (returned) ++sample_.steps;
  if (lost) sample_.steps = 0;
  sample_.time = pending - began_at_;
  if (!lost && (sample_.steps < steps_per_sample_ || sample_.time < kShortest)) return std::nullopt;

  const Sample whole = sample_;
  begin(pending);
  return whole;
}

}  // namespace hvd::runtime
