#include "tests/runtime/trace/trace_check.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "base/text.h"

namespace hvd::test {
namespace {

using nlohmann::json;

struct Open {
  std::vector<std::string> slices;
  double last = -1;
};

class Checker {
 public:
  Timeline check(const std::string& path) {
    std::ifstream file(path);
    if (!file) return fail(cat("there is no file ", path)), std::move(result_);
    std::ostringstream text;
    text << file.rdbuf();
    const json events = json::parse(text.str(), nullptr, false);
    if (!events.is_array() || events.empty()) {
      return fail(cat(path, " is no array in JSON, ", text.str().size(), " bytes")),
             std::move(result_);
    }
    for (const json& event : events) take(event);
    for (const auto& [where, open] : open_) {
      for (const auto& slice : open.slices) {
        fail(cat("rank ", where.first, ", track ", where.second, ": ", slice, " never ends"));
      }
    }
    for (const auto& [rank, tracks] : result_.tracks) {
      if (!result_.processes.contains(rank)) fail(cat("rank ", rank, " has no name"));
      for (const auto& [id, track] : tracks) {
        if (track.name.empty()) fail(cat("rank ", rank, ", track ", id, " has no name"));
      }
    }
    return std::move(result_);
  }

 private:
  void fail(std::string what) { result_.faults.push_back(std::move(what)); }

  void take(const json& event) {
    const auto phase = event.at("ph").get<std::string>();
    const int rank = event.at("pid").get<int>();
    if (phase == "M") return take_metadata(event, rank);
    const int id = event.at("tid").get<int>();
    const double when = event.at("ts").get<double>();
    auto& open = open_[{rank, id}];
    auto& track = result_.tracks[rank][id];
    if (when < open.last) fail(cat("rank ", rank, ", track ", id, ": goes back to ", when));
    open.last = when;
    if (phase == "B") {
      begin(event, open, track, cat("rank ", rank, ", track ", id, " \"", track.name, "\""));
    } else if (phase == "E") {
      if (open.slices.empty()) {
        fail(cat("rank ", rank, ", track ", id, ": an end of nothing at ", when));
      } else {
        open.slices.pop_back();
      }
    } else if (phase == "i") {
      track.instants.push_back(event.at("name").get<std::string>());
    } else {
      fail(cat("an event of kind ", phase));
    }
  }

  // Negotiation, then the operation, and inside it the operation's steps.
  void begin(const json& event, Open& open, TimelineTrack& track, const std::string& where) {
    const auto name = event.at("name").get<std::string>();
    const bool negotiates = name.starts_with("NEGOTIATE_");
    const bool outermost =
        negotiates || (event.contains("args") && event["args"].contains("batch"));
    if (outermost != open.slices.empty()) fail(cat(where, ": ", name, " at the wrong depth"));
    if (open.slices.size() > 1) fail(cat(where, ": ", name, " inside of ", open.slices.back()));
    if (outermost && !negotiates) {
      const bool joined = event["args"].contains("joined");
      const bool follows = !track.slices.empty() && last_outermost_[&track] == "NEGOTIATE_" + name;
      if (!joined && !follows) fail(cat(where, ": ", name, " was not negotiated"));
      track.arguments.push_back(event["args"]);
    }
    if (outermost) last_outermost_[&track] = name;
    open.slices.push_back(name);
    track.slices.push_back(name);
  }

  void take_metadata(const json& event, int rank) {
    const auto name = event.at("name").get<std::string>();
    if (name == "process_name") {
      result_.processes[rank] = event.at("args").at("name").get<std::string>();
    } else if (name == "thread_name") {
      auto& track = result_.tracks[rank][event.at("tid").get<int>()];
      if (!track.name.empty()) fail(cat("rank ", rank, ": a track with two names"));
      track.name = event.at("args").at("name").get<std::string>();
    }
  }

  Timeline result_;
  std::map<std::pair<int, int>, Open> open_;
  std::map<const TimelineTrack*, std::string> last_outermost_;
};

}  // namespace

std::set<int> Timeline::ranks_with(const std::string& slice) const {
  std::set<int> ranks;
  for (const auto& [rank, process] : processes) {
    if (count(rank, slice) > 0) ranks.insert(rank);
  }
  return ranks;
}

int Timeline::count(int rank, const std::string& slice) const {
  const auto found = tracks.find(rank);
  if (found == tracks.end()) return 0;
  int count = 0;
  for (const auto& [id, track] : found->second) {
    for (const auto& name : track.slices) count += name == slice ? 1 : 0;
    for (const auto& name : track.instants) count += name == slice ? 1 : 0;
  }
  return count;
}

const TimelineTrack* Timeline::track(int rank, const std::string& tensor) const {
  const auto found = tracks.find(rank);
  if (found == tracks.end()) return nullptr;
  for (const auto& [id, track] : found->second) {
    if (track.name == tensor) return &track;
  }
  return nullptr;
}

Timeline check_timeline(const std::string& path) { return Checker().check(path); }

Timeline expect_right_timeline(const std::string& path) {
  auto timeline = check_timeline(path);
  for (const auto& fault : timeline.faults) ADD_FAILURE() << path << ": " << fault;
  return timeline;
}

}  // namespace hvd::test
