// The driver's decisions, as a pure state machine: an event and the time go in, actions come out.
// No clock, socket, thread or random number inside, so that the same code runs in hvdrun and, with
// thousands of hosts over virtual time, in tests/driver/job/job_simulation_test.cpp.
//
// The policy here is that of a static job. First agents are brought to all hosts, each step of each
// host with a deadline of its own; only when every host has answered and addresses are known by
// which they reach each other are workers launched, else the job fails and names all hosts that
// cannot take part. What slots nobody named is known then, too, and so is who works where. Then
// every worker must exit with 0, and one that called hvd::init must have said before that it was
// done. The first worker, launch or host that fails ends the job: all others are asked to stop and
// killed when their grace is over. A host that is silent for too long is lost
// (driver/job/heartbeats.h). Every wait has its own deadline, except that for a running program,
// and its own words (waiting_for).
//
// A value for one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/machine/capacity.h"
#include "base/protocol/world_document.h"
#include "driver/job/any_job.h"
#include "driver/job/heartbeats.h"
#include "driver/job/init_watch.h"
#include "driver/job/job_io.h"
#include "driver/job/job_states.h"
#include "driver/job/plan.h"

namespace hvd::driver {

class Job final : public AnyJob {
 public:
  // `members` are ordered by rank, those of one host together; incarnations are given here.
  Job(JobOptions options, std::vector<WorldMember> members);
  // Agents are brought to all of these hosts, of which some have as many slots as their agents find
  // room for; when all have answered the plan is made, and those that it does not need are let go.
  Job(JobOptions options, PlanRequest request);

  std::vector<Action> step(const Event& event, TimePoint now) override;
  TimePoint next_deadline() const override;
  std::string waiting_for(TimePoint now) const override;
  bool preparing() const override {
    return state_ == JobState::preparing || state_ == JobState::choosing;
  }
  bool at_work() const override {
    return state_ == JobState::running || state_ == JobState::finished;
  }
  std::size_t host_count() const override { return hosts_.size(); }
  const JobHost& host_at(HostIndex host) const override { return hosts_[host]; }
  std::size_t worker_count() const override { return workers_.size(); }
  const JobWorker& worker_at(std::size_t worker) const override { return workers_[worker]; }
  std::size_t index_of(Incarnation incarnation) const override;
  Incarnation first_cause() const override { return failure_ ? failure_->incarnation : 0; }

  JobState state() const { return state_; }
  const std::vector<JobHost>& hosts() const { return hosts_; }
  const std::vector<JobWorker>& workers() const { return workers_; }
  std::vector<std::string> host_names() const;
  WorldDocument world() const override;

 private:
  // driver/job/job_seating.cpp
  Job(JobOptions options, const std::vector<std::string>& hosts);
  void seat(std::vector<WorldMember> members);
  void hear_capacity(HostIndex host, const Capacity& capacity);
  // If there is no plan yet; false if there can be none, and the job has failed.
  bool plan();
  void shut_down(HostIndex host);
  bool is_needed(HostIndex host) const { return host < seated_; }

  // driver/job/job_hosts.cpp: the way of hosts to being ready, and their loss
  void on(const event::Begin&);
  void on(const event::HostProgress& event);
  void on(const event::AgentReady& event);
  void on(const event::HostFailed& event);
  void on(const event::AddressesChosen& event);
  void on(const event::Heard& event);
  void on(const event::Unserved& event);
  void on(const event::AgentGone& event);
  void on(const event::AgentBroken& event);
  void exclude(HostIndex host, HostTrouble trouble);
  void something_moved() { state_deadline_ = now_ + options_.start_timeout; }
  void on_host_deadlines();
  void on_silence();
  void say_heard(HostIndex host);
  void on_preparation_deadline();
  void fail_preparation();
  std::vector<FailedHost> excluded_hosts() const;

  // driver/job/job.cpp: workers, and persons
  void on(const event::Launched& event);
  void on(const event::LaunchFailed& event);
  void on(const event::Initialised& event);
  void on(const event::Done& event);
  void on(const event::Described& event);
  void on(const event::Exited& event);
  void on(const event::StopRequested& event);
  void on(const event::Tick&);
  // What only an elastic job is told.
  template <typename Other>
  void on(const Other& /*event*/) {}
  void on_state_deadline();
  void on_init_watch();

  // A worker's own word, which may be out of turn.
  void hear(JobWorker& worker, WorkerState said);
  // driver/job/job_decisions.cpp
  void fail(JobFailure failure, int exit_code);
  std::string reason_of(const JobFailure& failure) const;
  std::string interrupt_text() const;
  // The step is that of a host that is lost while hosts are still being made ready.
  void fail_host(HostIndex host, std::string cause, Step step);
  void fail_worker(const JobWorker& worker, std::string cause, int exit_code);
  void broken(HostIndex host, const std::string& what);
  void begin_stop(const std::string& reason);
  void kill_all();
  void drop(HostIndex host);
  void drop_all(const std::string& why, bool only_with_workers);
  void leave(HostIndex host);
  void lose_workers(HostIndex host);
  // A worker that ended well and never joined leaves those who join waiting for it.
  void check_completeness();
  // What follows by itself from what has happened.
  void settle();

  JobWorker* worker_of(HostIndex host, Incarnation incarnation, std::string_view what);
  bool believed(HostIndex host) const;
  bool decided() const { return failure_.has_value() || interrupt_ != 0; }
  bool stop_has_begun() const { return state_ >= JobState::stopping; }
  void end(JobWorker& worker, WorkerState state);
  void move(JobState to);
  void move(HostIndex host, HostState to);
  static void move(JobWorker& worker, WorkerState to);
  void warn(std::string text) {
    actions_.emplace_back(action::Say{action::Say::To::warning, std::move(text)});
  }
  void notice(std::string text) {
    actions_.emplace_back(action::Say{action::Say::To::notice, std::move(text)});
  }
  void say(std::string text) {
    actions_.emplace_back(action::Say{action::Say::To::verbose, std::move(text)});
  }

  std::vector<int> ranks_of(HostIndex host, bool unstarted_only) const;
  std::string live_ranks_text() const;  // "ranks 1, 3 are"
  std::string preparing_text(TimePoint now) const;

  JobOptions options_;
  std::vector<JobHost> hosts_;
  std::vector<JobWorker> workers_;
  JobState state_ = JobState::planned;
  TimePoint state_deadline_ = kNever;
  std::uint64_t generation_ = 1;
  Incarnation first_incarnation_ = 1;
  int live_ = 0;
  int unstarted_ = 0;
  int absent_ = 0;  // workers that live, or are to, and have not called hvd::init
  std::optional<PlanRequest> request_;  // as long as there is no plan
  std::size_t seated_ = 0;      // hosts that have workers, the first ones; all, if nobody knows yet
  std::size_t agents_ = 0;      // hosts that are not gone
  std::size_t unanswered_ = 0;  // hosts that are neither ready nor excluded
  std::size_t excluded_ = 0;    // hosts with a trouble
  Heartbeats heartbeats_;
  InitWatch init_watch_;

  std::optional<JobFailure> failure_;
  int failure_code_ = 0;
  int first_joined_ = -1;  // rank of the first that called hvd::init
  int first_absent_ = -1;  // rank of the first that exited with 0 and never did
  int interrupt_ = 0;      // the first signal, if it came before any failure
  int stop_requests_ = 0;

  // Of the step under way.
  TimePoint now_{};
  std::vector<Action> actions_;
};

}  // namespace hvd::driver
