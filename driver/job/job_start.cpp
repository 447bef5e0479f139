#include "driver/job/job_start.h"

namespace hvd::driver {

std::unique_ptr<Job> JobStart::make() const {
  if (const auto* const members = std::get_if<std::vector<WorldMember>>(&workers)) {
    return std::make_unique<Job>(options, *members);
  }
  if (const auto* const request = std::get_if<PlanRequest>(&workers)) {
    return std::make_unique<Job>(options, *request);
  }
  return std::make_unique<Job>(options);
}

}  // namespace hvd::driver
