// The driver's decisions of an elastic job, as a pure state machine like driver/job/job.h: an event
// and the time go in, actions come out. The world changes here, and the job goes on.
//
// A host is visited each time that it is found: an agent is brought to it, its address looked for,
// and when it is no longer found, is lost or fails, the visit ends; a HostIndex names a visit. A
// host that failed rests before the next one (driver/job/slot_budget.h).
//
// The first world begins as soon as enough hosts are ready. After that joiners come first: they are
// started, get warm, are proposed with the next world, and are members when a commit has taken it
// into force. Who is to leave, leaves the same way, but not before another worker has the state,
// nor while the world would be too small (driver/job/handover.h). Only a loss makes an effective
// world at once, of all who are left, and who is warm; if these are too few, the job waits for
// replacements. Losses and joiners that come together are taken together. Success is declared by
// workers.
//
// A value for one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/job/any_job.h"
#include "driver/job/common_cause.h"
#include "driver/job/handover.h"
#include "driver/job/heartbeats.h"
#include "driver/job/init_watch.h"
#include "driver/job/job_io.h"
#include "driver/job/job_states.h"
#include "driver/job/slot_budget.h"
#include "driver/job/staffing.h"
#include "driver/job/world_plan.h"

namespace hvd::driver {

inline constexpr std::chrono::milliseconds kAtOnce{0};

struct ElasticOptions {
  JobOptions job;  // local_hosts apart: what is found says it
  Limits limits;
  int processes = 0;  // the first world should have; 0: as many as there is room for
  BudgetOptions budget;
  int reset_limit = -1;          // effective worlds because of losses; -1: no limit
  int planned_reset_limit = -1;  // planned ones; beyond it the world grows no more
  std::chrono::milliseconds elastic_timeout{600'000};  // for there to be enough workers
  // From the wish that a worker leaves to its leaving at a commit, and from that to its exit.
  std::chrono::milliseconds leave_grace{30'000};
  // What happens within this time is one change: losses, and joiners that get warm while others
  // are still coming.
  std::chrono::milliseconds loss_gather{5};
  // A worker that leaves may end before somebody else tells of the commit at which it left.
  std::chrono::milliseconds leave_gather{1'000};
  std::chrono::milliseconds join_gather{200};
  std::uint64_t jitter_seed = 0;  // spreads the rests of hosts
  // The hosts are a list that does not change and names some without slots: when each of them has
  // said how many it has, the list is checked, and gets room for `processes`, as one with numbers
  // is before the job begins.
  bool plan_list = false;
  bool hosts_are_fixed = false;  // a list: no host will ever come
  bool oversubscribe = true;
};

struct ElasticHost : JobHost {
  bool local = false;
  bool leaves = false;  // it will be taken away
  std::string address;  // empty: not known yet
};

struct ElasticWorker : JobWorker {
  Standing standing = Standing::coming;
  std::string leaves;          // why it is to leave at the next commit; empty: it is not
  std::string how;             // it was lost: "was killed by SIGKILL (signal 9)"
  int exit_code = 0;           // of the job, if that was why it ended
  bool keeps_leaving = false;  // whatever discovery says
  bool ready_early = false;    // it said so before its agent said that it runs
  TimePoint launch_by = kNever;
  TimePoint leave_by = kNever;
  TimePoint deadline = kNever;  // the next of these, or to exit once it is out
  bool may_have_left = false;   // a world without it was proposed
  // It has the state for sure: it was there from the beginning, or at a commit that was told of.
  bool has_state = false;
  bool killed = false;                    // its agent was told to kill it
  bool given_up = false;                  // it lives, and no world has it any more; see give_up()
  std::optional<std::string> left_early;  // it said so before its agent said that it runs
  bool quiet = false;                     // exited with 0 and never called hvd::init
  TimePoint left_at = kNever;             // when it ended as it had been asked to
  bool well = false;                      // ended after it had declared that its work is done
};

class ElasticJob final : public AnyJob {
 public:
  explicit ElasticJob(ElasticOptions options);

  std::vector<Action> step(const Event& event, TimePoint now) override;
  TimePoint next_deadline() const override;
  std::string waiting_for(TimePoint now) const override;
  bool preparing() const override {
    return state_ == ElasticState::gathering || state_ == ElasticState::waiting;
  }
  bool at_work() const override {
    return state_ == ElasticState::training || state_ == ElasticState::ending ||
           state_ == ElasticState::finished;
  }
  std::size_t host_count() const override { return hosts_.size(); }
  const JobHost& host_at(HostIndex host) const override { return hosts_[host]; }
  std::size_t worker_count() const override { return workers_.size(); }
  const JobWorker& worker_at(std::size_t worker) const override { return workers_[worker]; }
  std::size_t index_of(Incarnation incarnation) const override;
  Incarnation first_cause() const override {
    if (failure_) return failure_->incarnation;
    return cause_ ? cause_->incarnation : 0;
  }

  ElasticState state() const { return state_; }
  const std::vector<ElasticHost>& hosts() const { return hosts_; }
  const std::vector<ElasticWorker>& workers() const { return workers_; }
  std::vector<std::string> host_names() const;
  WorldDocument world() const override { return effective_; }
  // The newest generation that was published.
  std::uint64_t generation() const { return generation_; }

 private:
  // driver/job/elastic_hosts.cpp
  void on(const event::Begin&);
  void on(const event::HostsFound& event);
  void on(const event::DiscoveryFailed& event);
  void on(const event::HostProgress& event);
  void on(const event::AgentReady& event);
  void hear_capacity(const std::string& host, const Capacity& capacity);
  void on(const event::AddressFound& event);
  void on(const event::HostFailed& event);
  void on(const event::HostLeaves& event);
  void on(const event::AgentGone& event);
  void on(const event::AgentBroken& event);
  void on(const event::Heard& event);
  void on(const event::Unserved& event);
  void visit_hosts();
  void end_visits();
  void host_failed(HostIndex host, Step step, const std::string& message, int exit_code);
  void broken(HostIndex host, const std::string& what);
  void drop(HostIndex host);
  void drop_all(const std::string& why, bool only_with_workers);
  void leave(HostIndex host);
  void lose_workers(HostIndex host, const std::string& how);
  void on_host_deadlines();
  void on_silence();
  void say_heard(HostIndex host);
  bool usable(HostIndex host) const;
  bool believed(HostIndex host) const;

  // driver/job/elastic_workers.cpp
  void on(const event::Launched& event);
  void on(const event::LaunchFailed& event);
  void on(const event::Initialised& event);
  void on(const event::WorkerReady& event);
  void on(const event::Done& event);
  void on(const event::WorkerLeft& event);
  void on(const event::Described& event);
  void on(const event::Exited& event);
  void on(const event::LeaveRequested& event);
  void hear(std::size_t worker, WorkerState said);
  void hear_ready(std::size_t worker);
  void on_worker_deadlines();
  void on_init_watch();
  void note_presence(std::size_t worker);
  void launch(const SlotPlace& place, HostIndex host, bool as_member);
  // As it can: at a commit if it is in a world or may be, else at once.
  void send_away(std::size_t worker, const std::string& why, bool for_good);
  void ask_to_leave(std::size_t worker, std::string why, bool for_good);
  // It is of no world any more, and is told to end; nobody waits for a commit.
  void let_go(std::size_t worker, const std::string& why);
  void expect_exit(std::size_t worker);
  // Its time to leave is over.
  void stop_waiting_for(std::size_t worker);
  // It lives, and is of no use to the others any more: they go on without it, and its slot is
  // started again as after a failure.
  void give_up(std::size_t worker, const std::string& how, bool is_failure);
  void hear_left(std::size_t worker, const std::string& reason);
  void notice_quiet_ones();
  ElasticWorker* worker_of(HostIndex host, Incarnation incarnation, std::string_view what);

  // driver/job/elastic_failures.cpp
  void worker_failed(std::size_t worker, const std::string& how, int exit_code, bool by_itself);
  void start_again_or_set_aside(std::size_t worker, const std::string& how);
  void note_cause(const ElasticWorker& worker, const std::string& how, int exit_code);
  void tell_failures(const std::vector<SlotPlace>& started_again);
  std::string set_aside_text(const ElasticWorker& worker, TimePoint until) const;
  CommonCause::Situation situation() const;

  // driver/job/elastic_staff.cpp
  void form_first_world();
  void begin_world(const std::vector<SlotPlace>& places, const std::vector<Incarnation>& gone);
  void plan_list();
  void staff_slots();
  // All members have ended before anybody joined: there is no state that could be lost.
  void begin_again();
  void release_those_beyond_the_most(std::set<Incarnation>& released);
  Limits limits_now() const;
  // As many as discovery says, else as its agent found room for; 0: it has not said it yet.
  int slots_of(const HostSlots& found) const;
  std::vector<Room> rooms() const;
  std::vector<Occupant> occupants() const;

  // driver/job/elastic_world.cpp
  void on(const event::Committed& event);
  void decide();
  void reform();
  void reform_now();
  void reform_at_commit();
  void publish(WorldState state, const std::vector<Incarnation>& gone,
               const std::vector<Newcomer>& newcomers);
  void take_into_force(WorldDocument world);
  void fall_short(std::size_t there);
  // Though all that rests came back.
  bool can_never_be_enough() const;
  // What the world in force has become.
  struct Muster {
    std::vector<Incarnation> staying;
    std::vector<Incarnation> leaving;  // alive, and asked to leave
    std::vector<Incarnation> lost;     // ended, or told to end
    std::size_t warm = 0;
    std::size_t coming = 0;
  };
  Muster muster() const;
  // Of those who leave; the newcomers are those of the next world.
  std::vector<Incarnation> needed(const Muster& now, const std::vector<Newcomer>& come) const;
  // A member that has the state and is there for sure, and is one of these.
  bool has_heir(const std::function<bool(const ElasticWorker&)>& among) const;
  std::vector<Incarnation> in_all_proposed() const;
  // Of a member that left.
  TimePoint commit_is_told_by(const ElasticWorker& worker,
                              const std::vector<Incarnation>& in_all_proposed) const;
  bool nobody_is_left() const;
  void all_are_gone();
  void await_commits_of_those_who_left();
  bool others_wait_for_the_done();
  bool is_proposed(Incarnation incarnation) const;
  // The newest proposed world differs from the one in force. One that does not withdraws others.
  bool something_is_proposed() const;
  std::vector<Newcomer> newcomers(std::size_t most) const;
  ElasticWorker& worker(Incarnation incarnation) {
    return workers_[static_cast<std::size_t>(incarnation - 1)];
  }
  const ElasticWorker& worker(Incarnation incarnation) const {
    return workers_[static_cast<std::size_t>(incarnation - 1)];
  }

  // driver/job/elastic_end.cpp
  void on(const event::StopRequested& event);
  void on(const event::Tick&);
  template <typename Other>
  void on(const Other& /*event*/) {}  // of static jobs
  void on_state_deadline();
  void fail(JobFailure failure, int exit_code);
  void fail_with_cause(const std::string& why);
  void fail_with(const ElasticWorker& first, const std::string& why);
  void begin_to_end();
  void go_on_if_nobody_is_done();
  void begin_stop(const std::string& reason);
  void kill_all();
  void settle();
  void finish();
  std::string reason_of(const JobFailure& failure) const;

  // Bookkeeping, elastic_job.cpp
  void move(ElasticState to);
  void move(HostIndex host, HostState to);
  void move(std::size_t worker, WorkerState to);
  void move(std::size_t worker, Standing to);
  void end(std::size_t worker, WorkerState state);
  void set_deadline(std::size_t worker, TimePoint deadline);
  // Of one that is not out.
  void renew_deadline(std::size_t worker) {
    set_deadline(worker, std::min(workers_[worker].launch_by, workers_[worker].leave_by));
  }
  void decide_within(std::chrono::milliseconds time);
  double random();
  bool stop_has_begun() const { return state_ >= ElasticState::stopping; }
  bool runs() const {
    return state_ == ElasticState::training || state_ == ElasticState::waiting ||
           state_ == ElasticState::ending;
  }
  void warn(std::string text) {
    actions_.emplace_back(action::Say{action::Say::To::warning, std::move(text)});
  }
  void notice(std::string text) {
    actions_.emplace_back(action::Say{action::Say::To::notice, std::move(text)});
  }
  void say(std::string text) {
    actions_.emplace_back(action::Say{action::Say::To::verbose, std::move(text)});
  }

  // driver/job/elastic_waiting.cpp
  std::string gathering_text(TimePoint now) const;
  std::string short_text() const;
  std::string room_text() const;
  std::string troubles_text() const;
  bool is_found(const std::string& host) const;
  std::string members_text() const;
  std::string rest_text(TimePoint until) const;
  // What a world changes in the one in force: "b#1 was killed by SIGKILL (signal 9); c#0 joined".
  std::string change_text(const WorldDocument& next) const;

  const ElasticOptions options_;
  std::vector<ElasticHost> hosts_;  // visits, in the order in which they began
  std::vector<ElasticWorker> workers_;
  std::set<std::size_t> live_;                             // workers that have not ended
  std::set<std::pair<TimePoint, std::size_t>> deadlines_;  // of workers
  std::optional<std::vector<event::FoundHost>> found_;     // the newest answer
  std::map<std::string, HostIndex> visit_of_;              // of hosts that are not gone
  std::map<std::string, int> counted_;                     // slots, as the last agent there said
  std::map<std::string, int> planned_;                     // slots that the list needed to have
  bool list_is_planned_ = false;
  std::map<std::string, HostTrouble> troubles_;  // of the last visit that came to nothing
  std::map<std::pair<std::string, int>, std::string> slot_troubles_;  // of the last that failed
  // Failures of workers whose slots may be started again, until that is decided.
  std::vector<std::size_t> untold_;
  std::size_t agents_ = 0;  // visits that are not over

  ElasticState state_ = ElasticState::planned;
  TimePoint state_deadline_ = kNever;
  TimePoint decide_at_ = kNever;
  TimePoint begun_{};
  TimePoint last_done_ = kNever;    // when a worker was done last, while the job ends
  TimePoint next_rest_ = kNever;    // the end of the next rest of a host
  TimePoint joiners_due_ = kNever;  // when joiners that are warm wait no longer for the others

  std::uint64_t generation_ = 0;
  WorldDocument effective_;
  std::map<std::uint64_t, WorldDocument> proposed_;  // that may still take effect
  std::string state_lost_with_;  // with whom the only copy of the state went, and why
  int failure_resets_ = 0;
  int planned_resets_ = 0;

  Heartbeats heartbeats_;
  InitWatch init_watch_;
  std::set<std::size_t> absent_;  // members that run and have not called hvd::init
  SlotBudget budget_;
  CommonCause common_cause_;
  std::uint64_t random_state_;

  bool anybody_joined_ = false;
  bool a_member_joined_ = false;  // so there may be a state
  std::optional<JobFailure> failure_;
  int failure_code_ = 0;
  std::optional<JobFailure> cause_;  // the first of the failures that belong together
  int cause_code_ = 0;
  TimePoint last_failure_{};
  int interrupt_ = 0;
  int stop_requests_ = 0;

  // Of the step under way.
  TimePoint now_{};
  std::vector<Action> actions_;
  std::vector<std::size_t> launches_;  // decided, and said when the worlds are
};

}  // namespace hvd::driver
