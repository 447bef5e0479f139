// All that a job begins with. A value.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "driver/job/job.h"

namespace hvd::driver {

struct JobStart {
  struct Elastic {};
  // What its workers are: an elastic job's are found, a static one's are planned, or will be when
  // the slots of these hosts are known.
  using Workers = std::variant<Elastic, std::vector<WorldMember>, PlanRequest>;

  JobOptions options;
  Workers workers;

  std::unique_ptr<Job> make() const;
};

}  // namespace hvd::driver
