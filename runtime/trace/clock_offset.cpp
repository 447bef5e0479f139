#include "runtime/trace/clock_offset.h"

#include <array>
#include <fstream>
#include <limits>
#include <sys/stat.h>

#include "base/text.h"

namespace hvd::runtime::trace {

// The boot id of the kernel, and the time namespace, which may shift the monotonic clock. A kernel
// without such namespaces has no file for them.
std::string clock_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!std::getline(file, boot) || boot.empty()) return {};
  struct stat space {};
  const bool has_space = ::stat("/proc/self/ns/time", &space) == 0;
  return cat(boot, '/', has_space ? space.st_ino : 0);
}

bool ClockOffset::ask(Nanoseconds now) {
  if (next_ask() > now) return false;
  if (answers_ == kQuestions) answers_ = 0;
  waiting_ = true;
  return true;
}

Nanoseconds ClockOffset::next_ask() const {
  if (shared_ || waiting_) return std::numeric_limits<Nanoseconds>::max();
  return answers_ == kQuestions ? round_at_ : 0;
}

void ClockOffset::answered(const ClockAnswer& answer, Nanoseconds now) {
  if (!waiting_) return;
  waiting_ = false;

  if (!identity_.empty() && answer.machine == identity_) {
    shared_ = known_ = true;
    offset_ = 0;
    return;
  }

  const Nanoseconds round_trip = now - answer.asked;
  if (answers_ == 0 || round_trip < shortest_) {
    shortest_ = round_trip;
    best_ = answer.now - (answer.asked + round_trip / 2);
  }

  if (++answers_ < kQuestions) return;
  known_ = true;
  offset_ = best_;
  round_at_ = now + kEvery;
}

}  // namespace hvd::runtime::trace
