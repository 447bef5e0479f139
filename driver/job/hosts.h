// The hosts of a job: one entry for each time that a host takes part. A host that went away and is
// used again gets a new entry, and the old one keeps its number. Pure.
//
// A value for one thread.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/job/heartbeats.h"
#include "driver/job/job_io.h"
#include "driver/job/job_states.h"

namespace hvd::driver {

struct JobHost {
  std::string name;
  HostState state = HostState::planned;  // changed by Hosts::move() alone
  bool local = false;                    // its agent is a child of hvdrun
  bool joins = false;                    // its agent has joined by itself
  bool leaves = false;                   // it will be taken away
  TimePoint gone_at = kNever;            // then, as a notice has said
  std::string address;                   // empty: not known yet
  std::vector<std::size_t> workers;      // as Workers counts them
  TimePoint deadline = kNever;           // of what this host is waited for
  std::optional<Step> step;              // under way, while it is starting; empty before its turn
  std::optional<HostError> error;        // why it cannot take part; of a list of hosts only
  int live = 0;                          // workers that have not ended
};

class Hosts {
 public:
  explicit Hosts(Heartbeats::Options options) : heartbeats_(options, {}) {}

  // The newest of that name, and the current one until it is gone.
  HostIndex add(const std::string& name, bool local);
  // The only way to another state. Ends the process if the table does not allow the change.
  void move(HostIndex host, HostState to);

  std::size_t size() const { return all_.size(); }
  const std::vector<JobHost>& all() const { return all_; }
  JobHost& operator[](HostIndex host) { return all_[host]; }
  const JobHost& operator[](HostIndex host) const { return all_[host]; }

  // Those that are not gone, the oldest first.
  const std::set<HostIndex>& present() const { return present_; }
  // By name, those that are not gone.
  const std::map<std::string, HostIndex>& current() const { return current_; }
  std::optional<HostIndex> current(const std::string& name) const;
  std::size_t count(HostState state) const { return counts_[static_cast<std::size_t>(state)]; }
  // Hosts on which an agent may be.
  std::size_t agents() const { return all_.size() - count(HostState::gone); }

  // The agent may still report something.
  bool is_believed(HostIndex host) const;
  // Workers can be started there.
  bool is_usable(HostIndex host) const;

  // Another driver goes on, and looks for the agents that are there: for all of these hosts.
  void seek_all();
  // True: this one was looked for.
  bool find(HostIndex host) { return sought_.erase(host) != 0; }
  bool is_sought(HostIndex host) const { return sought_.contains(host); }
  bool are_any_sought() const { return !sought_.empty(); }

  // But for the next look for hosts that are silent.
  TimePoint next_deadline() const;
  std::vector<std::string> names() const;

  Heartbeats& heartbeats() { return heartbeats_; }
  const Heartbeats& heartbeats() const { return heartbeats_; }

 private:
  std::vector<JobHost> all_;
  std::set<HostIndex> present_;
  std::map<std::string, HostIndex> current_;
  std::set<HostIndex> sought_;
  std::array<std::size_t, kHostStates> counts_{};
  Heartbeats heartbeats_;
};

}  // namespace hvd::driver
