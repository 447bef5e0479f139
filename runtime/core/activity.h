// The steps of an operation on a batch: packing its memory, for example. An operation that wants
// its steps in the timeline opens an ActivityScope around each; scopes do not nest. While no
// timeline is recorded, or on a thread that runs no batch, a scope costs one branch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace hvd::runtime::trace {

// Nanoseconds of Clock, the unit of all records; 0: not yet.
using Nanoseconds = std::int64_t;
inline Nanoseconds nanoseconds_of(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
inline Nanoseconds nanoseconds_now() { return nanoseconds_of(Clock::now()); }

enum class Activity : std::uint8_t {
  wait_for_data,
  allocate_output,
  init_fusion_buffer,
  memcpy_in_fusion_buffer,
  memcpy_out_fusion_buffer,
  // Not a step but a choice, which takes no time (mark_choice()).
  doubling,
  halving,
  direct,
  ring,
};
inline constexpr int kActivities = 9;
inline bool is_choice(Activity activity) { return activity >= Activity::doubling; }
std::string_view activity_name(Activity activity);  // "MEMCPY_IN_FUSION_BUFFER", or "ring"

struct Step {
  Activity activity = Activity::wait_for_data;
  std::int32_t tensor = -1;  // its index in the batch; -1: all tensors
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

// The scopes of this thread append their steps here; null: steps are not recorded.
inline thread_local std::vector<Step>* current_steps = nullptr;

// Which algorithm the batch takes.
inline void mark_choice(Activity algorithm) {
  if (current_steps == nullptr) return;
  const Nanoseconds now = nanoseconds_now();
  current_steps->push_back({algorithm, -1, now, now});
}

class ActivityScope {
 public:
  explicit ActivityScope(Activity activity, std::int32_t tensor = -1)
      : ActivityScope(activity, true, tensor) {}
  // `real`: false if there is nothing to record this time.
  ActivityScope(Activity activity, bool real, std::int32_t tensor = -1)
      : steps_(real ? current_steps : nullptr) {
    if (steps_ != nullptr) step_ = {activity, tensor, nanoseconds_now(), 0};
  }
  ~ActivityScope() { end(); }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

  void end() {
    if (steps_ == nullptr) return;
    step_.end = nanoseconds_now();
    steps_->push_back(step_);
    steps_ = nullptr;
  }

 private:
  std::vector<Step>* steps_;
  Step step_;
};

}  // namespace hvd::runtime::trace
