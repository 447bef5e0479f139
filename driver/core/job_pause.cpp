#include "driver/core/job_pause.h"

#include <csignal>
#include <utility>

namespace hvd::driver {

void stop_as_by_terminal() {
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  struct sigaction ours {};
  ::sigaction(SIGTSTP, &by_default, &ours);
  ::raise(SIGTSTP);
  ::sigaction(SIGTSTP, &ours, nullptr);
}

void JobPause::begin() {
  if (std::exchange(running_, true)) return;
  callbacks_.stopping();
  unanswered_ = callbacks_.tell(true);
  if (unanswered_.empty()) return stop_this_process();

  timeout_.expires_after(kTimeout);
  timeout_.async_wait([this](const boost::system::error_code& error) {
    if (!error && running_) stop_this_process();
  });
}

void JobPause::answered(HostIndex host) {
  if (unanswered_.erase(host) == 0 || !unanswered_.empty()) return;
  if (running_) stop_this_process();
}

void JobPause::stop_this_process() {
  timeout_.cancel();
  unanswered_.clear();
  callbacks_.flush();
  const TimePoint begin = Clock::now();
  stop_as_by_terminal();
  running_ = false;
  callbacks_.tell(false);
  callbacks_.resumed(Clock::now() - begin);
}

}  // namespace hvd::driver
