// Orphaned descendants of this process become its children while a Subreaper exists. Agents are
// subreapers of their workers' processes themselves; only when an agent was killed do these become
// children of this process, which kills them.
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
  ~Subreaper();  // restores the setting from before
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

  // True if this process has any child: a cheap check before kill_orphans().
  static bool any_child();
  // Kills and reaps every child of this process that did not exist before this object and has no
  // owner (base/machine/child_process.h), then the children that it inherits from those, until
  // there are none. Returns the number of processes that are not dead after `limit`: the kernel
  // takes its time to end a large one.
  std::size_t kill_orphans(std::chrono::milliseconds limit) const;

 private:
  int previous_ = 0;
  std::set<pid_t> earlier_children_;
};

}  // namespace hvd::driver
