// Counts what a process does, over all its worlds: operations and bytes, steps, and the time during
// which its requests wait for other ranks. A rank that is slower than the others waits less than
// they do, since they wait for it.
//
// All calls are safe from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/collective.h"
#include "runtime/core/activity.h"

namespace hvd::runtime {

class WorkMeter {
 public:
  struct Work {
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
  };
  using Works = std::array<Work, kCollectives>;  // by Collective
  struct Reading {
    std::uint64_t steps = 0;
    trace::Nanoseconds first_step = 0;  // when the first step ended; 0: not yet
    trace::Nanoseconds waited = 0;
    Works works{};
  };

  // Some request waits from now on, and none did before. A call that is followed by another one
  // before end_wait() has no effect: two worlds may overlap for a moment.
  void begin_wait(trace::Nanoseconds now);
  void end_wait(trace::Nanoseconds now);
  void add_step(trace::Nanoseconds now);
  // The next step is the first one.
  void expect_first_step();
  void add(const Works& works);
  // Bytes of tensors that have come over connections.
  void add_received(std::size_t bytes) { received_ += bytes; }
  std::uint64_t received() const { return received_; }
  // A reading never shrinks, although a wait may end at a time before the last reading: it ends
  // when a response comes, and is told of when that is carried out.
  Reading read(trace::Nanoseconds now);

 private:
  static constexpr trace::Nanoseconds kNoWait = -1;

  std::atomic<std::uint64_t> received_ = 0;
  std::mutex mutex_;
  Reading reading_;                           // guarded by mutex_
  trace::Nanoseconds waits_since_ = kNoWait;  // guarded by mutex_
  trace::Nanoseconds told_ = 0;               // guarded by mutex_: the longest wait that was read
};

}  // namespace hvd::runtime
