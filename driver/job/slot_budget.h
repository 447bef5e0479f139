// The cost of a failure: whether the slot is started again at once, or rests first, and for how
// long. Pure; a random number between 0 and 1 is given in where a time is to be spread.
//
// Each slot may fail so many times, and so may the host be lost; one failure is forgotten after
// each `forget_after`. A failure beyond that lets the slot rest: nobody is started in it, while its
// neighbours work on and are started again. A host that was lost too often, or that cannot be
// reached, rests as a whole. The first rest is the shortest, and each further one twice as long as
// the one before, up to the longest; one of them is forgotten after each ten `forget_after` without
// any.
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
#include <vector>

#include "base/clock.h"

namespace hvd::driver {

enum class FailurePolicy : std::uint8_t { slot, host };

struct BudgetOptions {
  FailurePolicy policy = FailurePolicy::slot;
  int restarts = 3;  // of a slot, before it rests
  std::chrono::milliseconds forget_after{60'000};
  // How long rests are. A longest one of 0: a rest has no end, as in Horovod without a range.
  std::chrono::milliseconds shortest{10'000};
  std::chrono::milliseconds longest{600'000};
};

class SlotBudget {
 public:
  explicit SlotBudget(BudgetOptions options) : options_(options) {}

  // `random` is at least 0 and below 1. All return the end of the rest, of the slot or of its host:
  // `now` if there is none, kNever if it has no end. A slot that rests already goes on with that
  // rest.
  TimePoint worker_failed(const std::string& host, int slot, TimePoint now, double random);
  TimePoint host_lost(const std::string& host, TimePoint now, double random) {
    return worker_failed(host, kTheHostItself, now, random);
  }
  // The slot rests for the rest of the job: nothing that is started there can take part.
  void set_aside_for_good(const std::string& host, int slot) {
    hosts_[host].slots[slot].rest.ends = kNever;
  }
  // The slot rests as after failures that are too many; the rest always ends.
  TimePoint set_aside(const std::string& host, int slot, TimePoint now, double random);
  TimePoint host_failed(const std::string& host, TimePoint now, double random);
  // A host that rests does so until then, or longer.
  TimePoint prolong_rest(const std::string& host, TimePoint until);

  // Drops what no answer depends on any more: hosts whose names may never come again.
  void forget_old(TimePoint now);
  bool remembers(const std::string& host) const { return hosts_.contains(host); }

  bool rests(const std::string& host, TimePoint now) const;
  TimePoint slot_rest_ends(const std::string& host, int slot) const;
  // Slots of a host that need not rest as a whole; ascending.
  std::vector<int> resting_slots(const std::string& host, TimePoint now) const;
  // That are not forgotten, the last one counted whole.
  int failures(const std::string& host, int slot) const;
  // `now` or before: it does not rest.
  TimePoint rest_ends(const std::string& host) const;
  // The first end of all rests that are not over; kNever if there is none that ends.
  TimePoint next_end(TimePoint now) const;

 private:
  static constexpr int kTheHostItself = -1;  // in place of a slot

  struct Count {
    double value = 0;
    TimePoint as_of{};
  };
  // The rest of a slot, or of a host.
  struct Rest {
    Count count;
    TimePoint ends{};
  };
  struct Slot {
    Count failures;
    Rest rest;
  };
  struct Host {
    std::map<int, Slot> slots;
    Rest rest;
  };

  bool is_over(const Rest& rest, TimePoint now) const;
  static bool is_over(const Count& count, TimePoint now, std::chrono::milliseconds forget_after);
  static double grow(Count& count, TimePoint now, std::chrono::milliseconds forget_after);
  static TimePoint begin(Rest& rest, TimePoint now, double random, const BudgetOptions& options);

  BudgetOptions options_;
  std::map<std::string, Host> hosts_;
};

}  // namespace hvd::driver
