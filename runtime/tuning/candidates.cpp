#include "runtime/tuning/candidates.h"

#include <algorithm>

namespace hvd::runtime {
namespace {

constexpr double kFar = 4;
constexpr double kNear = 2;

Duration scaled(Duration time, double factor) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, Duration::period>(static_cast<double>(time.count()) * factor));
}

}  // namespace

Candidates::Candidates(const Parameters& incumbent, const Parameters& defaults,
                       const Frozen& frozen, const Sample& work)
    : incumbent_(incumbent), defaults_(defaults), work_(work), tried_{incumbent} {
  if (incumbent != defaults) moves_.push_back({Axis::defaults});
  if (!frozen.hierarchical_allreduce && work.has_allreduce) {
    moves_.push_back({Axis::hierarchical_allreduce});
  }
  if (!frozen.hierarchical_allgather && work.has_allgather) {
    moves_.push_back({Axis::hierarchical_allgather});
  }
  if (!frozen.fusion_threshold) {
    moves_.push_back({Axis::fusion, 1 / kFar});
    moves_.push_back({Axis::fusion, kFar});
  }
  if (!frozen.cycle_time) {
    moves_.push_back({Axis::cycle, kFar});
    moves_.push_back({Axis::cycle, 1 / kFar});
  }
  if (!frozen.cache) moves_.push_back({Axis::cache});
}

std::optional<Parameters> Candidates::moved(const Move& move) const {
  Parameters to = incumbent_;
  switch (move.axis) {
    case Axis::defaults:
      return defaults_;
    case Axis::cache:
      to.cache = !to.cache;
      return to;
    case Axis::hierarchical_allreduce:
      to.hierarchical_allreduce = !to.hierarchical_allreduce;
      return to;
    case Axis::hierarchical_allgather:
      to.hierarchical_allgather = !to.hierarchical_allgather;
      return to;
    case Axis::cycle:
      to.cycle_time = scaled(to.cycle_time, move.factor);
      if (to.cycle_time < kShortestCycle || to.cycle_time > kLongestCycle) return std::nullopt;
      return to;
    case Axis::fusion: {
      // Batches that are not full do not grow with the threshold, and do not shrink until it is
      // below their size.
      const bool full = work_.largest_batch > to.fusion_threshold / 2;
      if (move.factor > 1 && !full) return std::nullopt;
      const std::size_t from =
          full ? to.fusion_threshold : std::max<std::size_t>(work_.largest_batch, 1);
      to.fusion_threshold = static_cast<std::size_t>(static_cast<double>(from) * move.factor);
      if (to.fusion_threshold < kLeastFusion || to.fusion_threshold > kMostFusion) {
        return std::nullopt;
      }
      return to;
    }
  }
  return std::nullopt;
}

bool Candidates::was_tried(const Parameters& parameters) const {
  return std::find(tried_.begin(), tried_.end(), parameters) != tried_.end();
}

std::optional<Parameters> Candidates::next() {
  while (!moves_.empty()) {
    last_ = moves_.front();
    moves_.pop_front();
    const auto candidate = moved(last_);
    if (!candidate || was_tried(*candidate)) continue;
    tried_.push_back(*candidate);
    candidate_ = *candidate;
    return candidate;
  }
  return std::nullopt;
}

void Candidates::result(bool won) {
  if (!won) return;
  incumbent_ = candidate_;
  const bool is_number = last_.axis == Axis::fusion || last_.axis == Axis::cycle;
  if (!is_number) return;

  if (last_.axis == Axis::fusion) {
    work_.largest_batch = std::min(work_.largest_batch, incumbent_.fusion_threshold);
    // The new batches are assumed to be full until a sample shows otherwise.
    if (last_.factor > 1) work_.largest_batch = incumbent_.fusion_threshold;
  }

  const bool far = last_.factor == kFar || last_.factor == 1 / kFar;
  if (!far) return;
  // Steps of 2 are tried last, around the value at which the steps of 4 ended.
  moves_.push_back({last_.axis, kNear});
  moves_.push_back({last_.axis, 1 / kNear});
  moves_.push_front(last_);
}

}  // namespace hvd::runtime
