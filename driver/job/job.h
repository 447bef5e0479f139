// The driver's decisions, as a pure state machine: an event and the time go in, actions come out.
// There is no clock, socket, thread or random number inside, so that the same code runs in hvdrun
// and, with thousands of hosts over virtual time, in tests.
//
// One machine serves all jobs, and asks a policy (JobPolicy, driver/job/job_options.h) where they
// differ.
//
// The hosts of an elastic job are discovered. Each of them takes part as soon as it is found: an
// agent is brought to it, its address is looked for, and when it is no longer found, is lost or
// fails, its part ends. A host that failed rests before it is used again
// (driver/job/slot_budget.h). The first world begins as soon as enough hosts are ready. After that
// newcomers are started, get ready on standby, are proposed with the next world, and are members
// when a commit has taken it into force. A worker that is to leave leaves the same way, but not
// before another worker has the state, nor while the world would be too small
// (who_stays_on(), driver/job/staffing.h). Only a loss makes an effective world at once, of all
// workers that are left or on standby; if these are too few, the job waits for replacements. Losses
// and newcomers that come together are taken together. Workers declare success.
//
// The hosts of a static job are a list. Agents are brought to all of them; only when every host has
// answered and addresses are known by which they reach each other are workers launched, else the
// job fails and names all hosts that cannot take part. Slots without a number are known then, too,
// and with them the ranks. Then every worker must exit with 0, and one that called hvd::init must
// have said before that it was done. The first worker, launch or host that fails ends the job: all
// others are asked to stop and killed when their grace is over.
//
// A host that is silent for too long is lost (driver/job/heartbeats.h). Every wait has its own
// deadline, except that for a running program, and its own words (waiting_for).
//
// A value for one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/job/common_cause.h"
#include "driver/job/failures.h"
#include "driver/job/host_roster.h"
#include "driver/job/hosts.h"
#include "driver/job/init_watch.h"
#include "driver/job/job_io.h"
#include "driver/job/job_options.h"
#include "driver/job/job_states.h"
#include "driver/job/job_time.h"
#include "driver/job/plain_group.h"
#include "driver/job/plan.h"
#include "driver/job/requests.h"
#include "driver/job/slot_budget.h"
#include "driver/job/staffing.h"
#include "driver/job/suspension.h"
#include "driver/job/workers.h"
#include "driver/job/worlds.h"

namespace hvd::driver {

// The exit code of a job that was suspended: EX_TEMPFAIL, "try again later".
inline constexpr int kSuspended = 75;
// The exit code of a job that no worker's own decides.
inline constexpr int kLauncherError = 1;
// Bounds of how a process can end; an agent that says otherwise lies.
inline constexpr int kMaxSignal = 64;
inline constexpr int kMaxExitCode = 255;
inline constexpr const char* kWorkIsDone =
    "a worker says that the work is done: the job ends with the others";
inline constexpr std::size_t kMaxSaidEarly = 64;  // words of one worker; memory is not its to fill
inline constexpr std::chrono::milliseconds kAtOnce{0};

class Job {
 public:
  // Hosts and the world change; the hosts are told with HostsFound.
  explicit Job(JobOptions options);
  // A static job. `members` are ordered by rank, those of one host together.
  Job(JobOptions options, std::vector<WorldMember> members);
  // A static job with slots that only the agents can tell: agents are brought to all of these
  // hosts, and when all have answered the plan is made, and hosts that it does not need are let go.
  Job(JobOptions options, PlanRequest request);

  // After Finish was returned, every event is answered with nothing. `now` is the clock's, here and
  // below; limits are counted by the job's own time (driver/job/job_time.h), which stands still
  // while this process is held up.
  std::vector<Action> step(const Event& event, TimePoint now);

  // The last step has only noted that an agent lives or that time has passed. Of such steps in a
  // row the last one counts, and the last word of each host.
  bool was_routine() const { return was_routine_; }

  // When a Tick is due; kNever if nothing has a deadline, and hold-ups are not looked for.
  TimePoint next_deadline() const;
  // The events that the job waits for, in words for a person, of bounded length; empty only when it
  // is finished.
  std::string waiting_for(TimePoint clock) const;
  // Workers cannot work yet, or not at the moment, which may take long: a person likes to hear why.
  bool preparing() const {
    return state_ == JobState::preparing || state_ == JobState::choosing ||
           state_ == JobState::starting || state_ == JobState::waiting;
  }
  // A program runs, or all is over: nobody wonders what is waited for.
  bool at_work() const {
    return state_ == JobState::running || state_ == JobState::ending ||
           state_ == JobState::finished;
  }

  // "rank 2 on b#1 to call hvd::init, where rank 0 waits (20 s left)"; empty: nobody waits there.
  std::string init_text(TimePoint clock) const { return init_part(time_.own(clock)); }

  // The job's own time at this moment of the clock. Deadlines of hosts and workers are in it.
  TimePoint own_time(TimePoint now) const { return time_.own(now); }

  // How long the most silent host has not been heard; nothing if no host is listened to.
  std::optional<Duration> longest_silence(TimePoint now) const {
    return hosts_.heartbeats().longest_silence(time_.own(now));
  }

  JobState state() const { return state_; }
  // Hosts and workers are counted in the order in which they came up, and keep their numbers.
  const std::vector<JobHost>& hosts() const { return hosts_.all(); }
  // As far as they are known, else 0.
  int slots_at(HostIndex host) const;
  const std::vector<JobWorker>& workers() const { return workers_.all(); }
  std::vector<std::string> host_names() const { return hosts_.names(); }
  // workers().size() if there is no such worker.
  std::size_t index_of(Incarnation incarnation) const { return workers_.index_of(incarnation); }
  // That in force, without members before there is one; of a static job the one that will be.
  const WorldDocument& world() const { return worlds_.in_force(); }
  // The newest generation that was published.
  std::uint64_t generation() const { return worlds_.generation(); }
  // How often all workers were started again because one had failed before any called hvd::init().
  int restarts() const { return group_.restarts(); }
  // The worker that the job would name if it failed now; 0 if there is none.
  Incarnation first_cause() const;
  const Requests& requests() const { return roster_.requests(); }
  // Members of the world are lost, and there is no world without them yet. Looks at all members.
  bool is_recovering() const;

 private:
  Job(JobOptions options, JobPolicy policy);

  // driver/job/job_hosts.cpp
  void on(const event::Begin&);
  void on(const event::HostsFound& event);
  void on(const event::DiscoveryFailed& event);
  void on(const event::HostProgress& event);
  void on(const event::AgentReady& event);
  void on(const event::AddressFound& event);
  void on(const event::HostFailed& event);
  void on(const event::HostLeaves& event);
  void on(const event::AgentGone& event);
  void on(const event::AgentBroken& event);
  void on(const event::Heard& event);
  void on(const event::Unserved& event);
  void on(const event::Quiet& event);
  void hear_capacity(HostIndex host, const Capacity& capacity);
  void start_agent(HostIndex host);
  void start_agents();
  void shut_down(HostIndex host);
  void release_hosts();
  void host_failed(HostIndex host, Step step, const std::string& message, int exit_code);
  void broken(HostIndex host, const std::string& what);
  void drop(HostIndex host);
  void drop_all(const std::string& why, bool only_with_workers);
  Step step_of_agent(HostIndex host) const;
  void lose_agent(HostIndex host, const HostError& error);
  // Its part in the job is over.
  void leave(HostIndex host);
  void lose_workers(HostIndex host, const std::string& how);
  void on_host_deadlines();
  void on_silence();
  void say_heard(HostIndex host);

  // driver/job/job_requests.cpp
  void on(const event::DrainRequested& event);
  void on(const event::ScaleRequested& event);
  void refuse(std::string why);
  void accept(const std::string& text);
  std::string why_no_request() const;
  std::string why_not_drained(const std::string& host) const;
  std::string why_not_used_again(const std::string& host) const;
  void drain(const std::string& host);
  std::string release_reason(const JobWorker& worker) const;

  // driver/job/job_list.cpp: hosts that are a list, and are made ready together
  void list_hosts(const std::vector<std::string>& names);
  void seat(std::vector<WorldMember> members);
  // If there is no plan yet; false if there can be none, and the job has failed.
  bool plan_members();
  void on(const event::AddressesChosen& event);
  void something_moved();
  // The host stays out, and with it the job.
  void exclude(HostIndex host, HostError error);
  // Excludes the host while hosts are made ready, else ends the job.
  void listed_host_failed(HostIndex host, Step step, const std::string& message, int exit_code);
  void lose_silent_hosts(const std::vector<HostIndex>& lost,
                         const std::function<std::string(HostIndex)>& cause);
  void fail_unstarted(const std::vector<HostIndex>& hosts);
  void on_preparation_deadline();
  void fail_preparation();
  void launch_list(const std::vector<std::string>& addresses);
  void worker_is_started(HostIndex host);
  void check_completeness();
  void settle_list();
  bool is_needed(HostIndex host) const { return host < list_.seated; }
  bool is_preparing_list() const {
    return !policy_.discovers_hosts &&
           (state_ == JobState::preparing || state_ == JobState::choosing);
  }
  std::vector<FailedHost> excluded_hosts() const;
  std::string interrupt_text() const;
  std::vector<int> ranks_of(HostIndex host, bool unstarted_only) const;
  std::string list_text(TimePoint now) const;

  // driver/job/job_workers.cpp
  void on(const event::Launched& event);
  void on(const event::LaunchFailed& event);
  void on(const event::Initialised& event);
  void on(const event::WorkerReady& event);
  void on(const event::Done& event);
  void on(const event::Exited& event);
  void on(const event::LeaveRequested& event);
  void hear(std::size_t worker, WorkerState said);
  void hear_ready(std::size_t worker);
  void exited_well(std::size_t worker, WorkerState before);
  void on_worker_deadlines();
  void launch(const SlotPlace& place, HostIndex host, bool as_member);
  // As it can: at a commit if it is in a world or may be, else at once.
  void send_away(std::size_t worker, const std::string& why, bool for_good);
  void ask_to_leave(std::size_t worker, std::string why, bool for_good);
  // It is of no world any more, and is told to end; nobody waits for a commit.
  void let_go(std::size_t worker, const std::string& why);
  void expect_exit(std::size_t worker);
  // Its time to leave is over.
  void stop_waiting_for(std::size_t worker);
  std::string leave_time_text(std::string_view preposition, TimePoint gone_at) const;
  bool may_get_heir(const JobWorker& worker) const;
  void end(std::size_t worker, WorkerState state);
  JobWorker* worker_of(HostIndex host, Incarnation incarnation, std::string_view what);

  // driver/job/job_given_up.cpp
  void on(const event::WorkerLeft& event);
  void on(const event::Described& event);
  // It lives, and is of no use to the others any more: they go on without it, and its slot is
  // started again as after a failure.
  void give_up(std::size_t worker, const std::string& how, bool is_failure);
  void hear_left(std::size_t worker, const std::string& reason);
  void on_init_watch();
  int rank_that_waits() const;
  void notice_exits_before_init();

  // driver/job/job_failures.cpp
  void worker_failed(std::size_t worker, const std::string& how, int exit_code, bool by_itself);
  void fail_at_the_end(const JobWorker& worker, const std::string& how, int exit_code);
  void start_again_or_set_aside(std::size_t worker, const std::string& how);
  void note_cause(const JobWorker& worker, const std::string& how, int exit_code);
  void tell_failures(const std::vector<SlotPlace>& started_again);
  std::string back_text(TimePoint until) const;
  std::string set_aside_text(const JobWorker& worker, TimePoint until) const;
  CommonCause::Situation situation() const;
  double random();

  // driver/job/job_staff.cpp
  void form_first_world();
  void begin_world(const std::vector<SlotPlace>& places, const std::vector<Incarnation>& gone);
  void plan_list();
  void staff_slots();
  void release_those_beyond_the_most(std::set<Incarnation>& released);
  bool has_grown_enough() const;  // by --planned-reset-limit
  void count_planned_reset();
  Limits limits_now() const;
  std::vector<Occupant> occupants() const;

  // driver/job/job_slow.cpp
  void on(const event::FoundSlow& event);
  bool may_replace_slow() const;
  // Slow members for which there is one give way.
  void find_places_for_slow();
  bool has_place_for_another(const JobWorker& worker) const;
  // As many of those that give way as have somebody to take their place.
  void release_slow(std::set<Incarnation>& released);
  // Members that give way.
  std::size_t giving_way() const;

  // driver/job/job_group.cpp
  bool is_plain_group() const;
  bool may_blame_group() const;
  bool has_worked_for_long() const;
  bool has_room_for_more() const;
  void trust_slots_of(const std::string& host);
  void trust_slots_that_worked();
  bool has_lost_room() const;
  void keep_group();
  void find_reason_to_restart_group();
  void stop_group_after_failure();
  void stop_group_when_ripe(TimePoint earliest, const std::string& why);
  void stop_group(const std::string& why);
  void begin_again();

  // driver/job/job_world.cpp
  void on(const event::Committed& event);
  void on(const event::Saving& event);
  void on(const event::WorldEntered& event);
  void decide();
  void decide_within(std::chrono::milliseconds time);
  void reform();
  void reform_now();
  void reform_at_commit();
  void publish(WorldState state, const std::vector<Incarnation>& gone,
               const std::vector<Newcomer>& newcomers);
  void take_into_force(WorldDocument world);
  void fall_short(std::size_t there);
  void wait_for_workers(const std::string& why);
  // Counts a world because of failures, and ends the job if it has had as many as it may.
  bool reset_is_one_too_many();
  // There is too little room, though all that rests came back.
  bool can_never_be_enough() const;
  // The state of the world in force.
  struct MembershipCount {
    std::vector<Incarnation> staying;
    std::vector<Incarnation> leaving;  // alive, and asked to leave
    std::vector<Incarnation> lost;     // ended, or told to end
    std::size_t standby = 0;
    std::size_t joining = 0;
  };
  MembershipCount count_members() const;
  // Those of the workers that leave; the newcomers are those of the next world.
  std::vector<Incarnation> needed(const MembershipCount& now,
                                  const std::vector<Newcomer>& come) const;
  // A member that has the state and is there for sure, and is one of these.
  bool has_heir(const std::function<bool(const JobWorker&)>& among) const;
  // When a member that left has told of its commit, or never will.
  TimePoint commit_is_told_by(const JobWorker& worker,
                              const std::vector<Incarnation>& in_all_proposed) const;
  bool nobody_is_left() const;
  void all_are_gone();

  // job_kept_state.cpp: all members are lost, or all that had the state
  CommitId newest_kept() const;
  bool has_lost_agents() const;
  bool lacks_state() const;
  bool goes_on_from_agents();
  void wait_for_keeper(const CommitId& newest);
  bool start_keeper(const CommitId& newest);

  void await_commits_of_those_who_left();
  bool others_wait_for_the_done();
  std::vector<Newcomer> newcomers(std::size_t most) const;

  // driver/job/job_suspend.cpp
  void on(const event::SuspendRequested& event);
  void suspend(int signal_number);
  bool is_to_suspend() const { return suspension_.is_under_way(); }
  void propose_last_world();
  void suspended(WorldDocument last);
  void suspended_before_a_loss();
  // Without members of the world in force that have ended.
  WorldDocument plan_last_world(WorldState state);
  void on_suspension_deadline();
  void await_last_commit();
  TimePoint last_host_gone_at() const;

  // driver/job/job_end.cpp
  void on(const event::StopRequested& event);
  void on(const event::Resumed& event);
  void on(const event::TakenOver& event);
  void form_once_more();
  void end_search();
  void on(const event::Tick&);
  void on_hold_up(Duration time);
  void on_state_deadline();
  void fail(JobFailure failure, int exit_code);
  int exit_code() const;  // as far as it is known
  void fail_because(const std::string& cause);
  void fail_with_cause(const std::string& why);
  void fail_with(const JobWorker& first, const std::string& cause, int exit_code);
  void fail_with_common_cause(const CommonCause::Verdict& fault);
  static bool ended_well(const JobWorker& worker);
  bool anybody_completed() const;
  void begin_to_end(const std::string& why);
  void go_on_if_nobody_is_done();
  void begin_stop(const std::string& reason);
  void kill_all();
  void settle();
  void finish();
  std::string reason_of(const JobFailure& failure) const;

  // driver/job/job_waiting.cpp
  std::string preparing_text(TimePoint now) const;
  std::string begins_text(TimePoint now) const;
  std::string short_text() const;
  std::string members_text() const;
  std::string live_text() const;
  std::string live_ranks_text() const;
  std::string init_part(TimePoint now) const;
  std::vector<std::string> worker_parts(TimePoint now) const;
  std::vector<std::string> agent_parts(TimePoint now) const;
  std::string rest_text(TimePoint until) const;
  // The difference between a next world and the one in force: "b#1 was killed by SIGKILL
  // (signal 9); c#0 joined".
  std::string change_text(const WorldDocument& next) const;

  void move(JobState to);
  bool is_routine(const Event& event) const;
  // When something is due but the look for hosts that are silent.
  TimePoint next_limit() const;
  bool stop_has_begun() const { return state_ >= JobState::stopping; }
  bool runs() const {
    return state_ == JobState::running || state_ == JobState::waiting || state_ == JobState::ending;
  }
  void warn(std::string text) { tell(action::Say::To::warning, std::move(text)); }
  void notice(std::string text) { tell(action::Say::To::notice, std::move(text)); }
  void say(std::string text) { tell(action::Say::To::verbose, std::move(text)); }
  void tell(action::Say::To to, std::string text) {
    actions_.emplace_back(action::Say{to, std::move(text)});
  }

  const JobOptions options_;
  const JobPolicy policy_;
  Hosts hosts_;
  Workers workers_;
  Worlds worlds_;

  JobState state_ = JobState::planned;
  JobTime time_;
  TimePoint begun_{};
  TimePoint last_done_ = kNever;     // when a worker was done last, while the job ends
  TimePoint sought_since_ = kNever;  // when this driver began to look for the agents
  // Of the world in force.
  TimePoint took_force_{};
  bool is_entered_ = false;  // all its members have ended a step in it
  // Worlds that were lost, one after the other, since one has committed something.
  struct InVain {
    std::uint64_t generation = 0;  // of the last one
    CommitId commit;               // the newest at its end
    int worlds = 0;
  } in_vain_;

  struct Deadlines {
    TimePoint state = kNever;
    TimePoint decision = kNever;
    TimePoint rest = kNever;     // the end of the next rest of a host
    TimePoint joiners = kNever;  // when those on standby wait no longer for others that come
    // Until when a world that goes on from what agents have kept waits for all its workers.
    TimePoint from_agents = kNever;
    TimePoint entry = kNever;  // when a world counts as one that does not form
    TimePoint reports{};       // from then on all agents have told this driver of hvd::init()
  } deadlines_;

  HostRoster roster_;

  // The plan of a list of hosts.
  struct List {
    std::optional<PlanRequest> request;  // as long as there is no plan
    // Hosts that have workers, the first ones; all, if it is not known yet.
    std::size_t seated = 0;
    std::size_t excluded = 0;  // hosts that cannot take part
  } list_;

  // Workers that have called hvd::init().
  struct Joined {
    bool anybody = false;
    bool a_member = false;  // so there may be a state
    int first_rank = -1;
    std::optional<std::size_t> first_exited_before_init;
  } joined_;
  InitWatch init_watch_;

  Failures failures_;
  int planned_resets_ = 0;
  PlainGroup group_;  // all workers, as long as none of them has called hvd::init()
  CommonCause common_cause_;
  std::uint64_t random_state_;

  Suspension suspension_;

  // How the job ends.
  struct Outcome {
    std::optional<JobFailure> failure;
    int code = 0;
    int interrupt = 0;  // the first signal, if it came before any failure
    int stop_requests = 0;
  } outcome_;

  // The step under way.
  TimePoint clock_{};
  TimePoint now_{};  // in the job's own time, as all that is kept of it
  std::vector<Action> actions_;
  std::vector<std::size_t> launches_;  // decided, and said when the worlds are
  bool was_routine_ = false;           // the last one
};

}  // namespace hvd::driver
