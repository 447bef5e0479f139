// How a rank copies into its windows, which other ranks have read before.
//
// A cached store takes its line away from the core that read it last. That costs little between
// cores with a cache in common, and seven times as much as the copy itself between others: other
// parts of a processor, other sockets, or the cores of a virtual machine, which are together at one
// moment and apart at the next. A store past the caches costs the same everywhere, but then the
// readers get everything from memory, and the whole takes half as long again where cached stores
// are cheap. So both are measured, all the time. One thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <limits>

#include "base/bulk_copy.h"
#include "base/clock.h"

namespace hvd::runtime {

// Cached stores, unless they take more than twice as long as those past the caches. Of either, the
// faster of the last two times counts: a thread that was interrupted says nothing about stores. A
// value.
class StoreChoice {
 public:
  enum class Stores { cached, streamed };
  // After so many, the ones not chosen are tried again, twice.
  static constexpr int kPeriod = 128;

  Stores next() const { return turn_ < kTrials ? tried_ : chosen_; }
  // What was next took so long.
  void took(std::size_t bytes, std::chrono::nanoseconds time);

 private:
  static constexpr int kTrials = 2;
  static constexpr double kMuchSlower = 2;
  // When pages are touched for the first time that costs more than any store.
  static constexpr int kUntilFirstTrial = 8;

  class Pace {  // in nanoseconds for each byte
   public:
    void add(double pace);
    double best() const;

   private:
    static constexpr double kUnknown = std::numeric_limits<double>::infinity();
    double last_ = kUnknown;
    double before_ = kUnknown;
  };

  Stores chosen_ = Stores::cached;
  Stores tried_ = Stores::streamed;
  int turn_ = kPeriod - kUntilFirstTrial;
  Pace cached_;
  Pace streamed_;
};

class WindowWriter {
 public:
  // Calls fill(copy), which puts `bytes` into a window with copy(to, from, bytes). Other ranks see
  // them after the next thing that this thread does for them to see.
  template <typename Fill>
  void write(std::size_t bytes, Fill fill) {
    if (bytes < kLeast) {
      fill(bulk_copy);
      return;
    }
    const bool streams = choice_.next() == StoreChoice::Stores::streamed;
    const TimePoint begin = Clock::now();
    fill(streams ? stream_copy : bulk_copy);
    if (streams) finish_stream_copies();
    choice_.took(bytes, Clock::now() - begin);
  }

 private:
  // Little is written in no time, and read at once.
  static constexpr std::size_t kLeast = 64 << 10;
  StoreChoice choice_;
};

}  // namespace hvd::runtime
