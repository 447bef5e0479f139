// How a rank copies into its chunks, which other ranks have read before.
//
// A cached store has to fetch its line from the core that has it. Between cores with a cache in
// common that costs little; between others packing takes seven times as long: other parts of a
// processor, other sockets, or the cores of a virtual machine, which are together at one moment and
// apart at the next. A store past the caches fetches nothing and costs the same everywhere, but the
// readers get it from memory, and the whole takes half as long again where cached stores are cheap.
// So both are tried, again and again. One thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>

#include "base/clock.h"
#include "base/machine/bulk_copy.h"

namespace hvd::runtime {

// Which stores to fill the next chunk with: cached ones, unless they take more than twice as long
// as those past the caches. That is judged by trials, in which both take turns, so that they have
// the same work in the same weather; the faster of two times counts, since a thread that was
// interrupted says nothing about stores. A value.
class StoreChoice {
 public:
  enum class Stores { cached, streamed };
  // There is a trial after so many fills. While cached stores are cheap in it streamed ones are
  // lost on it, and the other way round, and ranks that are not in step wait for each other's. No
  // multiple of what a program does: it shall not always meet the same part of a step.
  static constexpr int kPeriod = 509;
  static constexpr int kTrial = 4;
  // Before the first one all pages of the chunks have been touched, which costs more than any
  // store.
  static constexpr int kUntilFirstTrial = 8;

  Stores next() const;
  // A fill with the stores that next() chose took so long.
  void took(Stores stores, std::size_t bytes, std::chrono::nanoseconds time);

 private:
  static constexpr double kMuchSlower = 2;
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  bool is_much_slower(double cached) const { return cached > kMuchSlower * streamed_; }
  void begin_trial();

  Stores chosen_ = Stores::cached;
  int turn_ = kPeriod - kUntilFirstTrial;  // since the last trial began
  int slow_in_a_row_ = 0;                  // of those outside trials
  // In the last trial, in nanoseconds for each byte.
  double cached_ = kUnknown;
  double streamed_ = kUnknown;
};

class ChunkWriter {
 public:
  // Calls fill(copy), which puts at most `bytes` into a chunk, all with copy(to, from, bytes).
  // The bytes are visible to each thread that sees a later store of this one, as
  // ShmCollective::sync() does.
  template <typename Fill>
  void write(std::size_t bytes, Fill fill) {
    if (bytes < kLeast) {
      fill(bulk_copy);
      return;
    }
    const auto stores = choice_.next();
    const bool streams = stores == StoreChoice::Stores::streamed;
    const TimePoint begin = Clock::now();
    fill(streams ? stream_copy : bulk_copy);
    if (streams) finish_stream_copies();
    choice_.took(stores, bytes, Clock::now() - begin);
  }

 private:
  // A smaller fill is read at once, and over before a clock could tell the difference.
  static constexpr std::size_t kLeast = 64 << 10;
  StoreChoice choice_;
};

}  // namespace hvd::runtime
