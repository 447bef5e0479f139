// Tells a program that is wrong from hosts that are: what fails the same way everywhere is no
// host's fault, and starting it again elsewhere only burns hosts. Pure.
//
//   - Of the first workers of all every one failed before it joined.
//   - Later: the newest workers failed before they joined, all in the same way, on three hosts or
//     on all that there are if these are two, and nobody joined in between.
//   - Three or more, and three quarters of the world, failed in the same way within some seconds.
//
// What comes from outside a program (SIGKILL, SIGTERM, SIGINT, SIGHUP, the loss of a host) says
// nothing of it; the owner does not tell of that by failed(), but by lost().
//
// A value for one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <set>
#include <string>

#include "base/clock.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

class CommonCause {
 public:
  // Failures within this time of each other count as one event.
  explicit CommonCause(std::chrono::milliseconds together = std::chrono::seconds(5))
      : together_(together) {}

  void launched(Incarnation worker);
  // It has reached the point where it can work with others.
  void joined(Incarnation worker);
  // It ended in a way that says nothing of the program.
  void lost(Incarnation worker);

  struct Failed {
    Incarnation worker = 0;
    std::string host;
    std::string how;  // what makes two failures the same: "exited with code 1"
  };
  // It failed by itself. `world_size`: of the world it was in or would have joined, before it and
  // those before it failed; `hosts`: that may be used. Not empty: the program is at fault, and why
  // that is believed.
  std::string failed(const Failed& failure, std::size_t world_size, std::size_t hosts,
                     TimePoint now);

 private:
  struct Recent {
    TimePoint at;
    std::string how;
    std::size_t world_size;
  };

  std::string judge_fresh(std::size_t hosts) const;
  std::string judge_together() const;

  std::chrono::milliseconds together_;
  std::set<Incarnation> fresh_;  // on their way
  std::set<Incarnation> first_;  // likewise, of those that were started before anybody failed
  bool anybody_joined_ = false;
  std::deque<Recent> recent_;
  // The newest failures of workers that had not joined, all in the same way.
  std::string fresh_how_;
  std::size_t fresh_failures_ = 0;
  std::set<std::string> fresh_hosts_;
};

// True of a signal that comes from outside of a program.
bool comes_from_outside(int signal_number);

}  // namespace hvd::driver
