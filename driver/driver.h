// Runs one job from a JobSpec to its end: finds the hosts, starts agents on them (or waits for
// agents to join), runs the rendezvous service, feeds events to the job's state machine
// (driver/job/job.h) and performs its actions. All of it happens on the thread that calls
// run_job(), except SSH sessions and name lookups, which have threads of their own. While it runs
// it handles the signals of driver/core/signals.h (SIGHUP and SIGTSTP not if they were ignored, as
// with nohup); afterwards they have their default effect. While it runs, orphans of its descendants
// become children of this process, and end with the job.
#pragma once

#include "driver/core/job_spec.h"
#include "driver/core/observer.h"
#include "driver/core/stop_request.h"

namespace hvd::driver {

// Blocks until the job has ended and no process of it is left. `stop`: may end it; null: nothing
// does but signals.
Outcome run_job(const JobSpec& spec, Observer& observer, StopRequest* stop = nullptr);

}  // namespace hvd::driver
