// A strict reader of timelines, for tests: valid JSON only; every begin has its end, on its own
// track, correctly nested, in order of time.
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
      slices;  // in order of their begin, "NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", ...
  std::vector<nlohmann::json> arguments;  // of the operations themselves
  std::vector<std::string> instants;
};

struct Timeline {
  std::vector<std::string> faults;  // empty: the timeline is valid
  std::map<int, std::string> processes;
  std::map<int, std::map<int, TimelineTrack>> tracks;  // by rank and track

  std::set<int> ranks_with(const std::string& slice) const;
  int count(int rank, const std::string& slice) const;  // begins, and instants
  // The track of this tensor on this rank; null: not found.
  const TimelineTrack* track(int rank, const std::string& tensor) const;
};

Timeline check_timeline(const std::string& path);
// The same, with a failed expectation for each fault.
Timeline expect_right_timeline(const std::string& path);

}  // namespace hvd::test
