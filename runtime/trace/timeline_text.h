// Formats the events of all ranks as a timeline in Chrome's trace format. A process is a rank, a
// track one of its tensors. The events of a track are in order of time, and every begin has its
// end: an operation is written only once all of it is known.
//
// The batches of rank 0 wait for the other ranks' reports of the same batch, for at most
// kReportTimeout: rank 0's track shows when each rank was ready. A value; for one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "runtime/core/world_spec.h"
#include "runtime/trace/batch.h"
#include "runtime/trace/frames.h"

namespace hvd::runtime::trace {

class TimelineText {
 public:
  static constexpr std::chrono::seconds kReportTimeout{2};
  static constexpr std::size_t kMaxHeld = 10'000;  // batches
  // Ranks whose readiness is shown, the last ones to be ready.
  static constexpr std::size_t kMaxShown = 64;
  // The most tracks of a rank, for tensors whose names are used again.
  static constexpr std::size_t kMaxTracks = 4'000;

  // All times are of rank 0's clock; `start` is their zero.
  TimelineText(const std::vector<Member>& members, std::uint64_t generation, Nanoseconds start);

  void add(const Events& events, TimePoint now);
  // Rank 0 has decided this batch.
  void mark_cycle(Nanoseconds when, std::uint64_t number);
  // Writes the batches that have waited long enough, or all; returns when to call again.
  TimePoint release(TimePoint now, bool all = false);
  // Elements of a JSON array, separated by commas; empty if there is nothing new.
  std::string take();

 private:
  struct Track {
    int id = 0;
    Nanoseconds last = 0;
  };
  struct Rank {
    std::unordered_map<std::string, Track> tracks;
    std::vector<Track> lanes;  // for tensors without a track of their own
    Track events;
    int next_track = 1;
  };
  struct RankReady {
    Nanoseconds when = 0;
    int rank = 0;
  };
  // A batch of rank 0, or reports of other ranks that arrived before it.
  struct Held {
    bool is_here = false;
    Batch batch;
    TimePoint until;
    int heard = 0;
    std::unordered_map<std::string, std::vector<RankReady>> ready;  // by tensor
  };

  Track& track(int rank, const Batch& batch, const Batch::Tensor& tensor, Nanoseconds begin);
  void name_track(int rank, const Track& track, std::string_view name);
  void write(int rank, const Batch& batch,
             const std::unordered_map<std::string, std::vector<RankReady>>* ready);
  void write_negotiation(int rank, Track& track, const Batch& batch, const Batch::Tensor& tensor,
                         std::vector<RankReady> ready);
  void write_execution(int rank, Track& track, const Batch& batch, std::size_t index);
  void write_steps(int rank, Track& track, const Batch& batch, std::size_t index);
  // Writes the fields that all elements have, without the closing brace.
  void open(int rank, Track& track, char phase, Nanoseconds when);
  void begin(int rank, Track& track, std::string_view name, Nanoseconds when);
  void end(int rank, Track& track, Nanoseconds when);
  void slice(int rank, Track& track, std::string_view name, Nanoseconds begin, Nanoseconds end);
  void element();
  void shift(Batch& batch, Nanoseconds by) const;

  Nanoseconds start_;
  std::vector<Rank> ranks_;
  std::map<std::uint64_t, Held> held_;
  std::uint64_t released_ = 0;  // nothing up to this number is held any more
  std::string out_;
};

}  // namespace hvd::runtime::trace
