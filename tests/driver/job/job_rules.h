// Invariants of a job, checked at every step from its events and its actions: no worker is launched
// too early or twice, a verdict on silence is neither hasty nor late, every wait is described and
// ends, the exit code is that of the first failure. These checks are independent of the decisions
// of driver/job/job.h. A value for one thread.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/job/job.h"
#include "tests/driver/job/hold_ups.h"

namespace hvd::driver {

class JobRules {
 public:
  JobRules(const Job& job, const JobOptions& options, std::vector<bool> local);

  void before(const Event& event, TimePoint now);
  void answered(const Action& action);
  // `in_detail`: also what takes long to check.
  void after(const Event& event, TimePoint now, bool in_detail);
  void ended();

  // Given up in this step because it was silent.
  bool lost_by_silence(HostIndex host) const {
    return verdict_ && !other_drop_ && was_watched(host) &&
           std::find(dropped_.begin(), dropped_.end(), host) != dropped_.end();
  }
  bool finished() const { return finish_.has_value(); }
  // The first thing that did not hold; "" if all did.
  const std::string& wrong() const { return wrong_; }
  void wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

 private:
  struct HostFacts {
    bool started = false;
    bool let_go = false;                    // nobody is to work there
    HostState before = HostState::planned;  // this step
    TimePoint heard{};
    TimePoint unserved{};  // last
  };
  struct WorkerFacts {
    bool launched = false;
    bool ended = false;
    bool initialised = false;
    bool done = false;
  };

  void note(const event::StopRequested& event);
  void note(const event::AgentReady& event) { hosts_[event.host].heard = now_; }
  void note(const event::Heard& event);
  void note(const event::Unserved& event);
  void note(const event::HostFailed& event);
  void note(const event::AddressesChosen& event) { addresses_ = event.addresses; }
  void note(const event::AgentGone& event);
  void note(const event::AgentBroken& event) { note_host_failure(event.host, 1); }
  void note(const event::LaunchFailed& event);
  void note(const event::Initialised& event);
  void note(const event::Done& event);
  void note(const event::Exited& event);
  template <typename Other>
  void note(const Other& /*event*/) {}
  void note_host_failure(HostIndex host, int exit_code);
  void note_failure(int exit_code);

  void check(const action::PublishWorld& action);
  void check(const action::StartAgent& action);
  void check(const action::PlanStands& action);
  void check(const action::ChooseAddresses& action);
  void check(const action::Launch& action);
  void check(const action::ShutDownAgent& action);
  void check(const action::DropAgent& action) {
    dropped_.push_back(action.host);
    parting_ = now_;
  }
  void check(const action::Say& action);
  void check(const action::Finish& action) { finish_ = action; }
  template <typename Other>
  void check(const Other& /*action*/) {}

  bool was_watched(HostIndex host) const;
  Duration silence(HostIndex host) const;
  Duration silence_against(HostIndex host) const;
  bool somebody_vouches_for_the_network(HostIndex against) const;
  void check_verdicts();
  void check_deadlines();

  const Job& job_;
  JobOptions options_;
  std::vector<bool> local_;
  HoldUps hold_ups_;
  std::vector<HostFacts> hosts_;
  std::vector<WorkerFacts> workers_;

  bool answers_a_tick_ = false;
  TimePoint now_{};           // in the job's own time, as all that follows
  TimePoint held_up_{};       // last: for long enough to give everybody a fresh timeout
  TimePoint delay_end_{};     // last
  TimePoint local_return_{};  // last: of an agent on this machine that had been silent
  TimePoint parting_{};       // last: of a host, which may leave another alone in its silence
  JobState before_ = JobState::planned;
  std::vector<HostIndex> dropped_;  // in this step
  bool verdict_ = false;
  bool other_drop_ = false;

  int published_ = 0;
  bool choosing_ = false;
  std::vector<std::string> addresses_;
  std::map<HostIndex, int> preparation_failures_;  // and their exit codes
  bool somebody_has_joined_ = false;
  bool somebody_is_absent_ = false;  // it ended well and never joined
  std::optional<int> expected_code_;
  std::optional<action::Finish> finish_;
  std::string wrong_;
};

}  // namespace hvd::driver
