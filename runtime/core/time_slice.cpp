#include "runtime/core/time_slice.h"

#include <optional>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hvd::runtime {
namespace {

// The shortest that Linux accepts.
constexpr std::uint64_t kShort = 100'000;  // nanoseconds

// As the kernel has it. The header of Debian 12 that declares it cannot be included beside the C
// library's <sched.h>.
struct Attributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime;  // the slice, in nanoseconds
  std::uint64_t deadline;
  std::uint64_t period;
  std::uint32_t least_utilization;
  std::uint32_t most_utilization;
};

std::optional<Attributes> read_attributes(pid_t thread) {
  Attributes attributes{};
  if (::syscall(SYS_sched_getattr, thread, &attributes, sizeof attributes, 0) != 0) {
    return std::nullopt;
  }
  // Without slices the kernel says 0.
  const bool has_slice = attributes.policy == SCHED_OTHER || attributes.policy == SCHED_BATCH;
  if (!has_slice || attributes.runtime == 0) return std::nullopt;
  return attributes;
}

bool set_slice(Attributes attributes, std::uint64_t slice) {
  attributes.runtime = slice;
  return ::syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

}  // namespace

std::optional<std::uint64_t> time_slice(pid_t thread) {
  const auto attributes = read_attributes(thread);
  if (!attributes) return std::nullopt;
  return attributes->runtime;
}

void ShortTimeSlice::begin() {
  if (begun_) return;
  begun_ = true;
  const auto attributes = read_attributes(0);
  if (!attributes || attributes->runtime <= kShort) return;
  if (set_slice(*attributes, kShort)) before_ = attributes->runtime;
}

ShortTimeSlice::~ShortTimeSlice() {
  if (before_ == 0) return;
  // Its nice value may be another one by now.
  if (const auto attributes = read_attributes(0)) set_slice(*attributes, before_);
}

}  // namespace hvd::runtime
