// One step of a job, as its metrics hear of it: the event, what the job decided, and the job after
// that. A value for the time of the call.
#pragma once

#include <vector>

#include "base/clock.h"
#include "driver/job/job.h"

namespace hvd::driver {

struct JobStep {
  const Event& event;
  const std::vector<Action>& actions;
  const Job& job;
  TimePoint now;  // the clock's
};

// The hosts and workers that the event or an action names, each once, with the workers of the hosts
// that are named without a worker. Only their states are looked at after a step: a job may have a
// hundred thousand workers, and an event for each of them.
struct NamedByStep {
  std::vector<HostIndex> hosts;
  std::vector<std::size_t> workers;
};
NamedByStep named_by(const JobStep& step);
// All hosts and workers that the job ever had.
NamedByStep all_of(const Job& job);

}  // namespace hvd::driver
