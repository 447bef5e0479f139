// Invariants of an elastic job, checked at every step from its events and its actions. Worlds are
// sound and their numbers grow by one; survivors keep their order and lead. No worker is started
// twice in a slot or where none may be, beside an older world, or without a rank before one worker
// has called hvd::init(). No member of a world has ended. Each world has a holder of the state if
// any is left. Every wait is described. Each request of a person has one answer: no worker is
// started on a drained host, no worker there becomes a member, and no world is made for more
// workers than were requested, nor for too few. In a job that is to be suspended no worker is
// started any more, a last world is proposed as long as it runs and is the last indeed, and the job
// stops in time if it comes to no commit. These checks are independent of the decisions of
// driver/job/job.h. A value for one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/job/job.h"
#include "tests/driver/job/hold_ups.h"

namespace hvd::driver {

class ElasticRules {
 public:
  ElasticRules(const Job& job, const JobOptions& options)
      : job_(job), options_(options), hold_ups_(options.pace) {}

  void before(const Event& event, TimePoint now);
  void answered(const Action& action);
  // `in_detail`: also what takes long to check.
  void after(const Event& event, TimePoint now, bool in_detail);

  bool finished() const { return finish_.has_value(); }
  const action::Finish& finish() const { return *finish_; }
  // The requested size that was granted; 0: none.
  int scaled_to() const { return requests_.size; }
  // The first thing that did not hold; "" if all did.
  const std::string& wrong() const { return wrong_; }
  // A slot, host#slot, in which so many workers have failed that it may stay empty. A request for a
  // size fills it again, until another one fails there.
  bool may_be_set_aside(const std::string& place) const;
  // Somebody has asked for it, or all workers were told to go.
  bool is_to_suspend() const { return suspension_.is_wanted; }
  // It may end with 128 + signal: by a second request, because it could come to no commit, or
  // because it came to none in time.
  bool may_be_stopped() const { return suspension_.may_be_stopped; }
  void wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

 private:
  struct Worker {
    HostIndex host = 0;
    std::string place;  // host#slot
    bool ended = false;
    bool warm = false;  // or a member since its launch
    bool done = false;
    bool has_state = false;        // for sure
    bool told_to_stop = false;     // or it has left by itself: it hands nothing over
    bool is_ready = false;         // it said so
    bool recovered_from = false;   // it had ended when a world without it was at work
    std::uint64_t begun_with = 0;  // the newest generation when it was launched
  };
  struct HostSession {
    bool ready = false;
    bool over = false;
    bool told_to_go = false;
    bool dropped = false;
    std::string address;
  };

  void note(const event::HostsFound& event);
  void note(const event::AgentReady& event) { sessions_[event.host].ready = true; }
  void note(const event::AddressFound& event) { sessions_[event.host].address = event.address; }
  void note(const event::HostFailed& event) { end_session(event.host); }
  void note(const event::AgentGone& event) { end_session(event.host); }
  void note(const event::LaunchFailed& event) { fail_worker(event.incarnation); }
  void note(const event::Exited& event);
  void note(const event::WorkerReady& event);
  void note(const event::Initialised& event);
  void note(const event::WorkerLeft& event) { workers_[event.incarnation].told_to_stop = true; }
  void note(const event::Done& event);
  void note(const event::Committed& event);
  void note(const event::WorldEntered& event);
  void note(const event::SuspendRequested& event);
  void note(const event::DrainRequested& event);
  void note(const event::ScaleRequested& event);
  template <typename Other>
  void note(const Other& /*event*/) {}
  void begin_search();
  void end_session(HostIndex host);
  void end_worker(Incarnation incarnation);
  void fail_worker(Incarnation incarnation);

  void check(const action::PublishWorld& action);
  void check(const action::StartAgent& action);
  void check(const action::Launch& action);
  void check(const action::StopWorkers& action);
  void check(const action::KillWorkers& action);
  void check(const action::ShutDownAgent& action);
  void check(const action::DropAgent& action);
  void check(const action::Finish& action);
  void check(const action::Say& action);
  void check(const action::Answer& action);
  void check(const action::VoidCommits& /*action*/) { group_stops_ = false; }
  template <typename Other>
  void check(const Other& /*action*/) {}
  void check_it_begins_with_others(const WorldMember& member);
  void check_soundness(const WorldDocument& world);
  void check_took_force(const WorldDocument& world, WorldDocument& proposed);
  void check_state_goes_on(const WorldDocument& world);
  void check_suspension(TimePoint clock, bool in_detail);
  void check_requests(const WorldDocument& world);
  void check_request_was_answered();
  static std::string disorder(const WorldDocument& before, const WorldDocument& after);

  const Job& job_;
  JobOptions options_;
  HoldUps hold_ups_;
  bool answers_a_tick_ = false;
  std::map<HostIndex, HostSession> sessions_;
  std::set<HostIndex> sought_;  // a driver looks for their agents, which another one had
  TimePoint sought_since_ = kNever;
  std::map<Incarnation, Worker> workers_;
  std::map<std::string, int> failures_;        // by place, of workers that nobody had told to end
  std::set<std::string> failed_since_scaled_;  // since the last request for a size was granted
  std::set<std::string> found_;
  std::uint64_t generation_ = 0;
  std::map<std::uint64_t, WorldDocument> published_;
  WorldDocument in_force_;   // before this step
  WorldDocument committed_;  // what is said to be now, if this step is about that
  bool somebody_is_done_ = false;
  bool a_member_joined_ = false;
  bool anybody_joined_ = false;  // but for those of a group that was told to end
  bool group_stops_ = false;     // to be started again
  JobState before_ = JobState::planned;
  struct Suspension {
    bool is_wanted = false;
    bool is_asked_for = false;  // by a signal
    bool may_be_stopped = false;
    bool must_stop = false;  // in this step
    bool is_last_in_force = false;
    bool began = false;
    TimePoint by = kNever;
  } suspension_;
  struct Requests {
    std::optional<Event> open;  // of this step, and not answered yet
    bool may_be_granted = false;
    std::set<std::string> drained;
    int size = 0;  // 0: nobody said
  } requests_;
  std::optional<action::Finish> finish_;
  std::string wrong_;
};

}  // namespace hvd::driver
