// The hosts that an elastic job may use, and when next: which are named, which of them people have
// drained, how many slots each has, and which hosts and slots rest after failures. Whether a host's
// agent is ready is read from Hosts. Pure.
//
// For one thread. `now` is the job's own time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "driver/job/hosts.h"
#include "driver/job/job_io.h"
#include "driver/job/requests.h"
#include "driver/job/slot_budget.h"
#include "driver/job/staffing.h"

namespace hvd::driver {

class HostRoster {
 public:
  using Found = std::vector<event::FoundHost>;

  // `hosts` outlives this.
  HostRoster(const Hosts& hosts, BudgetOptions budget) : hosts_(hosts), budget_(budget) {}
  HostRoster(const HostRoster&) = delete;
  HostRoster& operator=(const HostRoster&) = delete;

  // ---- names ----

  // Takes the newest answer of discovery, or the list, and forgets names that may never come again.
  void name(Found hosts, TimePoint now);
  // A host whose agent had joined by itself is named until the agent has gone.
  void joined_agent_is_gone(const std::string& host);
  bool is_known() const { return is_known_; }
  // The two are empty before the first answer. `used`: those that are not drained.
  const Found& named() const { return named_; }
  const Found& used() const { return used_; }
  // Null if it is not among them.
  const event::FoundHost* find_named(const std::string& host) const;
  const event::FoundHost* find_used(const std::string& host) const;
  // Nothing depends on this name any more: a cluster may give each machine a name of its own.
  bool is_old(const std::string& host) const;

  // ---- requests of people ----

  const Requests& requests() const { return requests_; }
  void set_size(int size) { requests_.size = size; }
  // False: it is drained already. `name`: of a host, or "host#slot".
  bool drain(const std::string& name);
  void use_again(const std::string& name);
  // ", b and c#1 are drained"; empty: nothing is.
  std::string drained_text() const;

  // ---- slots ----

  // As the agent there has found.
  void count_slots(const std::string& host, int slots) { counted_slots_[host] = slots; }
  // That the plan of a list needs, once it is made.
  void plan_slots(std::map<std::string, int> slots) { planned_slots_ = std::move(slots); }
  bool is_planned() const { return planned_slots_.has_value(); }
  // As many as discovery says, else as its agent found room for; 0: it has not said it yet.
  int slots_of(const HostSlots& host) const;
  // Slots that may be used now; `without`: but for this one.
  int ready_slots(const HostSlots& host, TimePoint now, std::optional<int> without = {}) const;
  int ready_slots(TimePoint now) const;  // of all hosts
  std::vector<Room> rooms(TimePoint now) const;
  // On all named hosts, without those that rest for the rest of the job. Nothing: one of them has
  // not said how many it has.
  std::optional<int> slots_for_ever(TimePoint now) const;
  // "3 slots are ready on 2 of 4 hosts", of those that may be used now.
  std::string room_text(TimePoint now) const;

  // ---- failures ----

  SlotBudget& budget() { return budget_; }
  const SlotBudget& budget() const { return budget_; }
  // The last try to make a host ready came to nothing, or did well.
  void note_error(const std::string& host, HostError error) { errors_[host] = std::move(error); }
  void forget_error(const std::string& host) { errors_.erase(host); }
  const HostError* error_of(const std::string& host) const;
  // Why the slot's last worker failed.
  void note_slot_error(const std::string& host, int slot, std::string how) {
    slot_errors_[{host, slot}] = std::move(how);
  }
  // " (b: connect: refused; c#1 is set aside, since it exited with code 3)"; empty: all is well.
  std::string errors_text(TimePoint now) const;

 private:
  void find_used_hosts();

  const Hosts& hosts_;
  bool is_known_ = false;
  Found named_;
  Found used_;
  Requests requests_;
  SlotBudget budget_;
  std::map<std::string, int> counted_slots_;
  std::optional<std::map<std::string, int>> planned_slots_;
  std::map<std::string, HostError> errors_;
  std::map<std::pair<std::string, int>, std::string> slot_errors_;
};

}  // namespace hvd::driver
