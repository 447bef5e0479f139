// Kills the processes that an agent on this machine has left when it died. They have become
// children of this process (driver/core/orphans.h).
//
// For the driver's thread.
#pragma once

#include <chrono>
#include <cstddef>

#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "driver/core/orphans.h"
#include "driver/run/job_context.h"

namespace hvd::driver {

class OrphanKiller {
 public:
  explicit OrphanKiller(const JobContext& context) : context_(context), timer_(context.io) {}
  OrphanKiller(const OrphanKiller&) = delete;
  OrphanKiller& operator=(const OrphanKiller&) = delete;

  // Waits for a moment, and looks again later for those that take longer to die.
  void kill();
  // At the end of the job. Waits.
  void kill_all();

 private:
  void kill_within(std::chrono::milliseconds moment);
  void warn(std::size_t left);

  const JobContext& context_;
  const Subreaper subreaper_;
  boost::asio::steady_timer timer_;
  TimePoint until_{};
};

}  // namespace hvd::driver
