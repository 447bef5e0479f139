// The workers of a program that knows nothing of hvd, as one group: all end and all are started
// again together (driver/job/job_group.cpp). Pure.
//
// A value for one thread.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "driver/job/staffing.h"

namespace hvd::driver {

class PlainGroup {
 public:
  void begin(TimePoint now) {
    state_ = State{};
    state_.begun = now;
  }
  TimePoint begun() const { return state_.begun; }

  // It has lost a worker that did not fail by itself.
  void hit() { state_.is_hit = true; }
  bool is_hit() const { return state_.is_hit; }

  // The hosts ask for another group. Returns since when.
  TimePoint wants_change(TimePoint now) {
    return state_.changed_at = std::min(state_.changed_at, now);
  }
  void wants_no_change() { state_.changed_at = kNever; }

  // All of it end, to be started again within these limits.
  void stop(const Limits& limits) {
    state_.stops = true;
    state_.limits = limits;
  }
  bool stops() const { return state_.stops; }
  // Those of the group that follows; nothing: this one was not stopped.
  const std::optional<Limits>& limits() const { return state_.limits; }
  // It stops because one of it was lost.
  void stop_after_loss() { state_.is_lossy = true; }
  bool is_lossy() const { return state_.is_lossy; }

  // How often all were started again because of failures.
  int restarts() const { return restarts_; }
  void count_restart() { ++restarts_; }

  // Slots that were set aside after failures and have not proved sound since. They alone do not
  // make the group begin again.
  void doubt(const std::string& host, int slot) { doubtful_slots_.emplace(host, slot); }
  void trust(const std::string& host, int slot) { doubtful_slots_.erase({host, slot}); }
  void trust_all() { doubtful_slots_.clear(); }
  template <typename Predicate>
  void trust_hosts_if(const Predicate& is_meant) {
    std::erase_if(doubtful_slots_, [&](const auto& place) { return is_meant(place.first); });
  }
  // These rooms, as if the doubtful slots rested.
  std::vector<Room> without_doubtful(std::vector<Room> rooms) const {
    for (Room& room : rooms) {
      for (const auto& [host, slot] : doubtful_slots_) {
        if (host == room.host) room.resting_slots.push_back(slot);
      }
    }
    return rooms;
  }

 private:
  struct State {
    TimePoint begun{};
    TimePoint changed_at = kNever;
    bool is_hit = false;
    bool stops = false;
    bool is_lossy = false;
    std::optional<Limits> limits;
  } state_;
  int restarts_ = 0;
  std::set<std::pair<std::string, int>> doubtful_slots_;
};

}  // namespace hvd::driver
