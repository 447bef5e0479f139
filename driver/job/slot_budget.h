// What a failure costs: whether the slot is started again at once, or its host rests first, and for
// how long. Pure; a random number between 0 and 1 is given in where a time is to be spread.
//
// Each slot may fail so many times, and so may the host be lost; one failure is forgotten after
// each `forget_after`. A failure beyond that, or of the way to the host, lets the whole host rest:
// nobody is started there, while those who work there work on. The first rest is the shortest, and
// each further one twice as long as the one before, up to the longest; one of them is forgotten
// after each ten `forget_after` without any.
//
// With FailurePolicy::host, which is Horovod's, the first failure of a worker lets its host rest,
// and the other workers of that host go, too.
//
// A value for one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"

namespace hvd::driver {

enum class FailurePolicy : std::uint8_t { slot, host };

struct BudgetOptions {
  FailurePolicy policy = FailurePolicy::slot;
  int restarts = 3;  // of a slot, before its host rests
  std::chrono::milliseconds forget_after{60'000};
  // Of rests. A longest one of 0: a rest has no end, as in Horovod without a range.
  std::chrono::milliseconds shortest{10'000};
  std::chrono::milliseconds longest{600'000};
};

class SlotBudget {
 public:
  explicit SlotBudget(BudgetOptions options) : options_(options) {}

  // `random` is at least 0 and below 1. All return the end of the host's rest: `now` if it does
  // not rest, kNever if it always will. A host that rests already goes on with that rest.
  TimePoint worker_failed(const std::string& host, int slot, TimePoint now, double random);
  TimePoint host_lost(const std::string& host, TimePoint now, double random) {
    return worker_failed(host, kTheHostItself, now, random);
  }
  TimePoint host_failed(const std::string& host, TimePoint now, double random);

  bool rests(const std::string& host, TimePoint now) const;
  // `now` or before: it does not rest.
  TimePoint rest_ends(const std::string& host) const;
  // Of all rests that are not over, the first; kNever if there is none that ends.
  TimePoint next_end(TimePoint now) const;

 private:
  static constexpr int kTheHostItself = -1;  // in place of a slot

  struct Count {
    double value = 0;
    TimePoint as_of{};
  };
  struct Host {
    std::map<int, Count> failures;  // by slot
    Count rests;
    TimePoint rest_ends{};
  };

  static double grow(Count& count, TimePoint now, std::chrono::milliseconds forget_after);
  TimePoint rest(Host& host, TimePoint now, double random);

  BudgetOptions options_;
  std::map<std::string, Host> hosts_;
};

}  // namespace hvd::driver
