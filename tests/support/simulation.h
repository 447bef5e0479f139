// Parts of every simulator: dice, time that passes only from event to event, and seeds that a
// person can repeat. Values for one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace hvd {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(limit)); }
  bool one_in(int chances) { return chances > 0 && below(chances) == 0; }
  std::chrono::milliseconds up_to(int limit) { return std::chrono::milliseconds(below(limit + 1)); }

 private:
  std::mt19937_64 engine_;
};

class VirtualTime {
 public:
  TimePoint now() const { return now_; }
  std::chrono::milliseconds passed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now_ - start_);
  }
  void at(TimePoint when, std::function<void()> work) {
    plan_.push_back({when, order_++, std::move(work)});
    std::push_heap(plan_.begin(), plan_.end());
  }
  void after(Duration time, std::function<void()> work) { at(now_ + time, std::move(work)); }
  // Nothing happens before then, and all that should have happens then.
  void hold_up_until(TimePoint then) { held_up_until_ = std::max(held_up_until_, then); }

  // The next event: a planned one, or the one that is due at `deadline`. False if there is none.
  template <typename Due>
  bool advance(TimePoint deadline, const Due& due) {
    const TimePoint planned = plan_.empty() ? kNever : plan_.front().at;
    if (planned == kNever && deadline == kNever) return false;
    now_ = std::max({now_, std::min(planned, deadline), held_up_until_});
    if (deadline <= planned) {
      due();
    } else {
      std::pop_heap(plan_.begin(), plan_.end());
      const auto work = std::move(plan_.back().work);
      plan_.pop_back();
      work();
    }
    return true;
  }

 private:
  struct Planned {
    TimePoint at;
    std::uint64_t order;
    std::function<void()> work;
    bool operator<(const Planned& other) const {  // the earliest on top
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  const TimePoint start_{std::chrono::hours(1)};
  TimePoint now_ = start_;
  TimePoint held_up_until_{};
  std::vector<Planned> plan_;
  std::uint64_t order_ = 0;
};

// HVD_SIMULATION_SEED=n: that one alone; HVD_SIMULATION_RUNS=n: how many there are, with the other
// one from it on; HVD_SIMULATION_AT_MOST=n: no more than so many of those that a test asks for.
struct Seeds {
  explicit Seeds(long runs) : end(runs) {
    // NOLINTBEGIN(concurrency-mt-unsafe)
    const char* const how_many = std::getenv("HVD_SIMULATION_RUNS");
    if (how_many != nullptr) end = std::atol(how_many);
    if (const char* const text = std::getenv("HVD_SIMULATION_AT_MOST")) {
      end = std::min(end, std::atol(text));
    }
    if (const char* const text = std::getenv("HVD_SIMULATION_SEED")) {
      begin = std::atol(text);
      end = begin + (how_many != nullptr ? end : 1);
    }
    // NOLINTEND(concurrency-mt-unsafe)
  }
  long begin = 0;
  long end;
};

}  // namespace hvd
