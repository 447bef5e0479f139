// Runs one job from a JobSpec to its end: finds out who may work, brings agents to the hosts (or
// waits for them to come), hosts the rendezvous service, feeds the job's state machine
// (driver/job/any_job.h) with what happens and does what it decides. All on one thread, the one
// that calls run_job(), but for SSH sessions and name servers, which have threads of their own;
// the signals of driver/core/signals.h are handled while it runs (SIGHUP and SIGTSTP not if they
// were ignored, as nohup does) and have their default effect afterwards. While it runs, orphans of
// its descendants become children of this process, and end with the job.
#pragma once

#include "driver/core/job_spec.h"
#include "driver/core/observer.h"

namespace hvd::driver {

// Blocks until the job has ended and no process of it is left.
Outcome run_job(const JobSpec& spec, Observer& observer);

}  // namespace hvd::driver
