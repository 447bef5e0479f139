// Processes whose parents died fall to this one while a Subreaper lives. An agent keeps its
// workers' processes itself; only when an agent was killed do they come here, to be killed.
//
// One at a time in a process, on the thread that runs the job.
#pragma once

#include <chrono>
#include <set>
#include <sys/types.h>

namespace hvd::driver {

class Subreaper {
 public:
  Subreaper();
  ~Subreaper();  // what it was before
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

  // True if this process has a child at all: the cheap question before the next.
  static bool any_child();
  // Kills and reaps every child of this process that was not there before, `spared` excepted, and
  // then what falls to it from those, until nothing is left. Returns how many are still there at
  // the limit.
  std::size_t kill_orphans(const std::set<pid_t>& spared, std::chrono::milliseconds limit) const;

 private:
  int previous_ = 0;
  std::set<pid_t> earlier_children_;
};

}  // namespace hvd::driver
