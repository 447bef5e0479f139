#include "driver/core/timers.h"

#include <algorithm>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "base/machine/own_time.h"

namespace hvd::driver {

// Shared with the handler, which may run after the end of the timer.
class OwnTimer::Wait : public std::enable_shared_from_this<Wait> {
 public:
  Wait(boost::asio::io_context& io, Duration limit, std::function<void()> over)
      : timer_(io), deadline_(Clock::now(), limit), over_(std::move(over)) {}

  void cancel() {
    over_ = nullptr;
    timer_.cancel();
  }

  // Looks once in each pace, so that a stop is noticed.
  void go_on() {
    const TimePoint now = Clock::now();
    look_at_own_time(now);
    const TimePoint next = now + kOwnTimePace;
    timer_.expires_at(is_late_ ? next : std::clamp(deadline_.at(), now, next));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && self->over_) self->look();
    });
  }

 private:
  // After a stop one pace is left for what lies unread. A process that is late every time is not
  // waited for twice.
  void look() {
    const TimePoint now = Clock::now();
    const bool was_late = std::exchange(is_late_, now - timer_.expiry() > kOwnTimePace);
    const bool may_lie_unread = is_late_ && !was_late;
    if (may_lie_unread || !deadline_.passed(now)) return go_on();
    std::exchange(over_, nullptr)();
  }

  boost::asio::steady_timer timer_;
  OwnDeadline deadline_;
  std::function<void()> over_;
  bool is_late_ = false;
};

void OwnTimer::begin(Duration limit, std::function<void()> over) {
  cancel();
  wait_ = std::make_shared<Wait>(io_, limit, std::move(over));
  wait_->go_on();
}

void OwnTimer::cancel() {
  if (wait_) wait_->cancel();
  wait_.reset();
}

}  // namespace hvd::driver
