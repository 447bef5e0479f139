// The past of a job, as the driver needs it that goes on in place of one that has died: the steps
// of the job, from the journal, say what was asked of each agent and has no answer, and what each
// agent has said already. The agents hold their workers meanwhile, and each says once more all that
// it has said (base/protocol/agent_link.h), so that nothing is lost that the dead driver has read
// and not written down.
//
// For the driver's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/job/job_io.h"

namespace hvd::driver {

// Whether an agent reports this, and will do so once more to a later driver: it happens once.
bool is_report(const Event& event);

// Whether somebody acts on one of these, who must not know more of the job than the next driver
// will: so the step has to be on the disk before.
bool has_effect(const std::vector<Action>& actions);

class Takeover {
 public:
  // The job has answered this event of the past. In their order.
  void relive(const Event& event, const std::vector<Action>& actions);
  // The job has published this world, in the past or since.
  void publish(const WorldDocument& world);

  // Hosts where an earlier driver had an agent, or was bringing one to.
  std::vector<HostIndex> hosts() const;
  // Where those hosts reach the rendezvous service.
  std::set<std::string> rendezvous_addresses() const;
  // Published last, and not in force; nothing: there was none.
  const std::optional<WorldDocument>& proposed() const { return proposed_; }
  // The job was over, and its driver has died while it ended it; nothing: it goes on.
  const std::optional<action::Finish>& finish() const { return finish_; }

  // Its agent was not found again yet, and is not known to be gone.
  bool looks_for(HostIndex host) const { return looked_for_.contains(host); }
  void ends_looking_for(HostIndex host) { looked_for_.erase(host); }
  // The job knows that its agent is there.
  bool was_ready(HostIndex host) const;
  // Nothing: the job has not heard it yet.
  std::optional<event::AddressFound> address(HostIndex host) const;
  // An action of this driver for an agent that is looked for waits until it is found. True: it
  // does.
  bool defer(const Action& action);
  // What was asked of its agent, or for its sake, and was not answered, or waits: to be done when
  // it is found.
  std::vector<Action> unanswered(HostIndex host) const;
  // The job has had this report of an agent, or of the workers, which comes again.
  bool is_known(const Event& event) const;
  // The agent that was found is dropped, since the job's own has ended, or for another reason.
  void has_ended(HostIndex host, std::string why) { ended_[host] = std::move(why); }
  // The event as the job is to hear it; nothing: it is not to. Of a host that is looked for, also
  // that this is over.
  std::optional<Event> told(const Event& event);

 private:
  // Since the job has asked for its agent.
  struct Past {
    bool ready = false;
    std::optional<event::AddressFound> address;
    std::vector<Action> unanswered;
    std::set<std::string> reports;  // as the journal has them
  };
  void ask(const Action& action);
  void answer(const Event& event);

  std::map<HostIndex, Past> pasts_;
  std::set<HostIndex> looked_for_;
  std::map<HostIndex, std::string> ended_;  // their agents are dropped, and why
  std::optional<WorldDocument> proposed_;
  std::uint64_t entered_ = 0;  // the newest generation of which the job has heard that it works
  std::optional<action::Finish> finish_;
};

}  // namespace hvd::driver
