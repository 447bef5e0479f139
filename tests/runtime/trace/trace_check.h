// A strict reader of timelines, for tests: JSON or nothing; every begin has its end, on its own
// track, rightly nested, in order of time. What it found can be asked.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace hvd::test {

struct TimelineTrack {
  std::string name;  // the tensor
  std::vector<std::string>
      slices;  // as they began, "NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", ...
  std::vector<nlohmann::json> arguments;  // of the operations themselves
  std::vector<std::string> instants;
};

struct Timeline {
  std::vector<std::string> faults;  // empty: it is right
  std::map<int, std::string> processes;
  std::map<int, std::map<int, TimelineTrack>> tracks;  // by rank and track

  std::set<int> ranks_with(const std::string& slice) const;
  int count(int rank, const std::string& slice) const;  // begins, and instants
  // All that was said of this tensor on this rank; null: nothing.
  const TimelineTrack* track(int rank, const std::string& tensor) const;
};

Timeline check_timeline(const std::string& path);
// The same, with a failed expectation for each fault.
Timeline expect_right_timeline(const std::string& path);

}  // namespace hvd::test
