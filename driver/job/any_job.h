// What the shell around a job (driver/driver.h) knows of it, whichever it is: a static one
// (driver/job/job.h) or one whose world changes (driver/job/elastic_job.h). Values, and the face
// that both show; for one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/protocol/world_document.h"
#include "driver/job/job_io.h"
#include "driver/job/job_states.h"

namespace hvd::driver {

// The exit code of a job that no worker's own decides.
inline constexpr int kOwnTrouble = 1;
// What a process can end with; an agent that says otherwise lies.
inline constexpr int kMaxSignal = 64;
inline constexpr int kMaxExitCode = 255;
inline constexpr std::size_t kMaxSaidEarly = 64;  // words of one worker; memory is not its to fill

struct JobOptions {
  std::string job_id;
  std::chrono::milliseconds grace{5'000};
  // For each step of a host to being ready, for the choice of addresses, and then for all workers
  // of a host to run.
  std::chrono::milliseconds start_timeout{30'000};
  // Hosts that are out of reach are told one by one; those that come within this time of the first
  // are told together.
  std::chrono::milliseconds gather_time{100};
  // Silence of an agent for this long is taken for the loss of its host; 0: never. With it comes a
  // Tick every tenth of that time.
  std::chrono::milliseconds heartbeat_timeout{0};
  // Silence of all for this long is theirs and no longer ours; 0: never.
  std::chrono::milliseconds orphan_timeout{30'000};
  // For workers that live to call hvd::init() when others have; 0: for ever.
  std::chrono::milliseconds init_timeout{3'600'000};
  // Names of those hosts whose agents are children of hvdrun.
  std::vector<std::string> local_hosts;
  // Beyond the grace, for the agents to kill what ignored it and to report.
  std::chrono::milliseconds stop_margin{2'000};
  // For killed workers to be reported.
  std::chrono::milliseconds kill_timeout{5'000};
  // For an agent to clean up and leave.
  std::chrono::milliseconds close_timeout{5'000};
  // For an agent that was given up to be gone.
  std::chrono::milliseconds drop_timeout{5'000};
};

struct JobHost {
  std::string name;
  HostState state = HostState::planned;
  std::vector<std::size_t> workers;  // as AnyJob::worker_at() counts them
  TimePoint deadline = kNever;       // of what this host is waited for, if it has one of its own
  std::optional<Step> step;          // under way, while it is starting; none: it waits for its turn
  std::optional<HostTrouble> trouble;  // why it cannot take part, if it cannot
  int live = 0;                        // workers that have not ended
  int unstarted = 0;  // workers that neither run nor have ended; counted in static jobs only
};

struct JobWorker {
  WorldMember member;
  HostIndex host = 0;
  WorkerState state = WorkerState::planned;
  int pid = 0;
  // What it said before its agent reported its start: its own words and the report of its keeper
  // reach the agent on two ways. Taken up with the start.
  std::vector<WorkerState> said_early;
  bool joined = false;  // it has called hvd::init, now or before
};

class AnyJob {
 public:
  virtual ~AnyJob() = default;

  // After Finish was returned, every event is answered with nothing. Ticks that are further apart
  // than a third of heartbeat_timeout are taken for a hold-up of this process.
  virtual std::vector<Action> step(const Event& event, TimePoint now) = 0;

  // When a Tick is due; kNever if nothing has a deadline.
  virtual TimePoint next_deadline() const = 0;
  // What the job waits for, in words for a person, of bounded length; empty only when it is
  // finished.
  virtual std::string waiting_for(TimePoint now) const = 0;
  // Workers cannot work yet, or not at the moment, which may take long: persons like to hear what
  // is waited for.
  virtual bool preparing() const = 0;
  // A program runs, or all is over: nobody wonders what is waited for.
  virtual bool at_work() const = 0;

  // That in force, without members before there is one; of a static job the one that will be.
  virtual WorldDocument world() const = 0;
  // Hosts and workers are counted in the order in which they came up, and keep their numbers.
  virtual std::size_t host_count() const = 0;
  virtual const JobHost& host_at(HostIndex host) const = 0;
  virtual std::size_t worker_count() const = 0;
  virtual const JobWorker& worker_at(std::size_t worker) const = 0;
  // worker_count() if there is no such worker.
  virtual std::size_t index_of(Incarnation incarnation) const = 0;
  // The worker that the job would name if it failed now; 0 if there is none.
  virtual Incarnation first_cause() const = 0;

 protected:
  AnyJob() = default;
  AnyJob(const AnyJob&) = default;
  AnyJob& operator=(const AnyJob&) = default;
};

}  // namespace hvd::driver
