#include "base/machine/own_time.h"

#include <algorithm>
#include <mutex>

#include "base/threads.h"

namespace hvd {
namespace {

struct ProcessTime {
  ProcessTime() { keep_free_in_children(mutex); }
  std::mutex mutex;
  OwnTime own{kOwnTimePace};
};

// Never destroyed: threads may still wait while the process ends.
ProcessTime& process_time() {
  static auto& only = *new ProcessTime();
  return only;
}

[[maybe_unused]] const auto& process_time_is_made = process_time();

}  // namespace

void OwnTime::look(TimePoint now) {
  if (looked_ != kNever && is_stop(now)) {
    stops_.push_back({looked_ + pace_, now});
    if (stops_.size() > kRemembered) stops_.pop_front();
  }
  looked_ = now;
}

Duration OwnTime::stopped_between(TimePoint begin, TimePoint now) const {
  Duration stopped{};
  const auto add = [&](const Stop& stop) {
    stopped += std::max(Duration::zero(), std::min(stop.end, now) - std::max(stop.begin, begin));
  };
  for (const auto& stop : stops_) add(stop);
  if (looked_ != kNever && is_stop(now)) add({looked_ + pace_, now});
  return stopped;
}

void look_at_own_time(TimePoint now) {
  auto& time = process_time();
  const std::lock_guard lock(time.mutex);
  time.own.look(now);
}

Duration stopped_since(TimePoint begin) {
  auto& time = process_time();
  const std::lock_guard lock(time.mutex);
  return time.own.stopped_between(begin, Clock::now());
}

}  // namespace hvd
