// Ctrl-Z: the job stops as a whole, with this process, and goes on with it. The agents are told
// first, since the workers belong to no process group of the terminal; when all have answered, or
// after a short while, this process stops itself, as the signal would have done.
//
// For the driver's thread. `io` and what the callbacks use outlive this.
#pragma once

#include <chrono>
#include <functional>
#include <set>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

class JobPause {
 public:
  // For an agent to answer; one that does not is cut off, and its lease stops its workers.
  static constexpr std::chrono::milliseconds kTimeout{500};

  struct Callbacks {
    // Tells all agents; returns the hosts from which answered() is expected.
    std::function<std::set<HostIndex>(bool on)> tell;
    std::function<void()> stopping;
    // After SIGCONT; for how long it had been stopped.
    std::function<void(Duration stopped)> resumed;
  };

  JobPause(boost::asio::io_context& io, Callbacks callbacks)
      : timeout_(io), callbacks_(std::move(callbacks)) {}
  JobPause(const JobPause&) = delete;
  JobPause& operator=(const JobPause&) = delete;

  // SIGTSTP has come. Again while that is under way: nothing.
  void begin();
  // This agent does what it was told, or is gone.
  void answered(HostIndex host);

 private:
  void stop_this_process();

  boost::asio::steady_timer timeout_;
  Callbacks callbacks_;
  std::set<HostIndex> unanswered_;
  bool running_ = false;
};

// Stops this process as SIGTSTP does where nobody handles it; returns after SIGCONT. At once in a
// process group that nobody could let go on, where the system ignores the signal.
void stop_as_by_terminal();

}  // namespace hvd::driver
