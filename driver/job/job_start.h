// All that a job begins with. A value.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "driver/job/job.h"

namespace hvd::driver {

struct JobStart {
  struct Elastic {};
  // An elastic job finds its workers. The workers of a static job are planned, now or when the
  // slots of its hosts are known.
  using Workers = std::variant<Elastic, std::vector<WorldMember>, PlanRequest>;

  JobOptions options;
  Workers workers;

  std::unique_ptr<Job> make() const;
};

}  // namespace hvd::driver
