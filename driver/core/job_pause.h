// Ctrl-Z: the whole job stops together with this process, and continues with it. The agents are
// told first, since the workers are in no process group of the terminal; when all have answered, or
// after a short timeout, this process stops itself, as the signal would have done.
//
// For the driver's thread. `io` and all that the callbacks use outlive this.
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
  // For the agents to answer. The lease stops the workers of an agent that does not.
  static constexpr std::chrono::milliseconds kTimeout{500};

  struct Callbacks {
    // Sends Pause to all agents; returns the hosts from which answered() is expected.
    std::function<std::set<HostIndex>(bool on)> tell;
    std::function<void()> stopping;
    // Right before this process stops itself. Waits until what was said is written.
    std::function<void()> flush;
    // After SIGCONT, with the time for which this process was stopped.
    std::function<void(Duration stopped)> resumed;
  };

  JobPause(boost::asio::io_context& io, Callbacks callbacks)
      : timeout_(io), callbacks_(std::move(callbacks)) {}
  JobPause(const JobPause&) = delete;
  JobPause& operator=(const JobPause&) = delete;

  // SIGTSTP has come. Has no effect while a pause has already begun.
  void begin();
  // This agent has paused its workers, or is gone.
  void answered(HostIndex host);

 private:
  void stop_this_process();

  boost::asio::steady_timer timeout_;
  Callbacks callbacks_;
  std::set<HostIndex> unanswered_;
  bool running_ = false;
};

// Stops this process as an unhandled SIGTSTP does; returns after SIGCONT. In an orphaned process
// group, which no shell could continue, the system ignores the signal, and it returns at once.
void stop_as_by_terminal();

}  // namespace hvd::driver
