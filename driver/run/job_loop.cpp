#include "driver/run/job_loop.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/machine/own_time.h"

namespace hvd::driver {

void JobLoop::handle(const Event& event) {
  events_.push_back(event);
  if (std::exchange(handling_, true)) return;
  while (!events_.empty()) {
    const Event next = std::move(events_.front());
    events_.pop_front();
    const TimePoint now = this->now();
    look_at_own_time(now);  // for the threads that bring agents to other hosts
    const auto actions = job_->step(next, now);
    callbacks_.after_step(next, actions, now);
  }
  handling_ = false;
  arm_timer_soon();
}

std::vector<Action> JobLoop::relive(const Event& event, TimePoint then) {
  past_ = std::max(past_, then);
  ahead_ = std::max(Duration::zero(), past_ - Clock::now());
  return job_->step(event, then);
}

Duration JobLoop::since_past() const { return now() - past_; }

void JobLoop::arm_timer_soon() {
  if (std::exchange(arming_, true)) return;
  boost::asio::post(io_, [this] {
    arming_ = false;
    arm_timer();
  });
}

void JobLoop::arm_timer() {
  const TimePoint deadline = job_->next_deadline();
  if (deadline == wake_at_) return;
  wake_at_ = deadline;
  timer_.cancel();
  if (deadline == kNever) return;
  timer_.expires_at(deadline - ahead_);
  timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    wake_at_ = kNever;
    callbacks_.before_tick(now());
    handle(event::Tick{});
  });
}

}  // namespace hvd::driver
