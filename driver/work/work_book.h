// The work of a job's workers so far, from the counters that they report about once a second
// (base/protocol/work_reading.h). Pure: times are handed in. For the driver's thread.
//
// A worker that restarts begins again at zero, under another incarnation; the totals of the job
// keep the work of those that have ended.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/collective.h"
#include "base/protocol/work_reading.h"

namespace hvd::driver {

class WorkBook {
 public:
  // Rates are those of about this time, or of so many steps if that takes longer.
  static constexpr std::chrono::seconds kWindow{5};
  static constexpr std::uint64_t kSteps = 2;
  // A worker that has said nothing for so long has no rate.
  static constexpr std::chrono::seconds kSilence{30};

  // A reading that is not newer than the last one is ignored, and a counter that goes back stays.
  void add(std::uint64_t incarnation, const WorkReading& reading, TimePoint now);
  // The worker has ended: its last reading counts in the totals for good.
  void end(std::uint64_t incarnation);

  // Null if there is none.
  const WorkReading* newest(std::uint64_t incarnation) const;

  // The work per second within the window, by the worker's own clock; nothing as long as there are
  // less than two readings, or if the worker has fallen silent.
  struct Rate {
    double steps = 0;
    double operations = 0;
    double bytes = 0;
    double waited = 0;  // the share of the time during which it waited for others, 0 to 1
  };
  std::optional<Rate> rate(std::uint64_t incarnation, TimePoint now) const;

  // Bytes of the state that it receives, within about kWindow; 0: that is not known yet.
  double received_per_second(std::uint64_t incarnation) const;

  struct Total {
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
  };
  using Totals = std::array<Total, kCollectives>;  // by Collective
  // Totals over all workers that the job ever had.
  Totals totals() const;

 private:
  struct Sample {
    TimePoint at;
    WorkReading reading;
  };
  // Samples that are closer replace each other, whichever process sends them.
  static constexpr std::chrono::milliseconds kApart{500};
  static constexpr std::size_t kMaxSamples = 300;
  static bool is_before_window(const std::deque<Sample>& samples, TimePoint now);

  std::map<std::uint64_t, std::deque<Sample>> samples_;  // by incarnation, the oldest first
  Totals ended_{};
};

}  // namespace hvd::driver
