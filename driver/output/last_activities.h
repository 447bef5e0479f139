// The last activities of the workers of a job, as they reported them when their world failed or
// when they were told to stop: for the report on a job that ends abnormally. A value, for one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "driver/output/activity_report.h"

namespace hvd::driver {

class LastActivities {
 public:
  // Only the first words of a worker since clear() count: what it says later follows from the
  // failure.
  void add(std::uint64_t incarnation, ActivityRow worker);
  // A new world is in force.
  void clear() { rows_.clear(); }

  // Whole lines: a table of the workers by rank, then the ranks that had not asked for what others
  // waited for. Empty if no worker has said anything.
  std::string text() const;

 private:
  // More workers than this are counted, not listed.
  static constexpr std::size_t kListed = 32;

  std::map<std::uint64_t, ActivityRow> rows_;  // by incarnation
};

}  // namespace hvd::driver
