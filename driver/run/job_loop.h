// Feeds events to a job's state machine, one after the other, and calls it when its next deadline
// has come. It knows the clock; the machine does not.
//
// For the thread of `io`, which outlives this.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "driver/job/job.h"

namespace hvd::driver {

class JobLoop {
 public:
  struct Callbacks {
    // A deadline has come. The job judges hosts by time, so that it is to know now which of them
    // were heard.
    std::function<void(TimePoint now)> before_tick;
    // The job has answered `event` with `actions`.
    std::function<void(const Event& event, const std::vector<Action>& actions, TimePoint now)>
        after_step;
  };

  JobLoop(boost::asio::io_context& io, std::unique_ptr<Job> job, Callbacks callbacks)
      : io_(io), job_(std::move(job)), callbacks_(std::move(callbacks)), timer_(io) {}
  JobLoop(const JobLoop&) = delete;
  JobLoop& operator=(const JobLoop&) = delete;

  const Job& job() const { return *job_; }
  // An event that comes while another one is handled waits for its turn.
  void handle(const Event& event);
  // A step of the past, of an earlier driver. Nothing is done about it; the answer is returned.
  std::vector<Action> relive(const Event& event, TimePoint then);
  // Since the last step of the past.
  Duration since_past() const;

 private:
  // The clock of the machine begins anew when that is started. That of the job goes on.
  TimePoint now() const { return Clock::now() + ahead_; }

  // Arms the timer once for all events of this turn of the loop, since the job computes its next
  // deadline from all hosts.
  void arm_timer_soon();
  void arm_timer();

  boost::asio::io_context& io_;
  const std::unique_ptr<Job> job_;
  const Callbacks callbacks_;
  std::deque<Event> events_;
  bool handling_ = false;
  boost::asio::steady_timer timer_;
  TimePoint wake_at_ = kNever;
  bool arming_ = false;
  TimePoint past_{};  // the last step of an earlier driver
  Duration ahead_{};  // of the clock
};

}  // namespace hvd::driver
