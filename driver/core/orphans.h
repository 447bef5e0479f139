// Orphaned descendants of this process become its children while a Subreaper exists. Agents are
// subreapers of their workers' processes themselves; only when an agent was killed do these become
// children of this process, which kills them.
//
// One at a time in a process, on the thread that runs the job.
#pragma once

#include <chrono>
#include <cstddef>
#include <set>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "driver/core/observer.h"

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

// Kills the processes that an agent on this machine has left when it died. For the driver's thread.
class OrphanKiller {
 public:
  // Both outlive this.
  OrphanKiller(boost::asio::io_context& io, Observer& observer) : observer_(observer), timer_(io) {}
  OrphanKiller(const OrphanKiller&) = delete;
  OrphanKiller& operator=(const OrphanKiller&) = delete;

  // Waits for a moment, and looks again later for those that take longer to die.
  void kill();
  // At the end of the job. Waits.
  void kill_all();

 private:
  void kill_within(std::chrono::milliseconds moment);
  void warn(std::size_t left);

  Observer& observer_;
  const Subreaper subreaper_;
  boost::asio::steady_timer timer_;
  TimePoint until_{};
};

}  // namespace hvd::driver
