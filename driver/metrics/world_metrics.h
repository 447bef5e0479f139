// Metrics of a job's worlds: the one in force, how many were formed and why, and how long that
// took. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "driver/job/job_options.h"
#include "driver/metrics/families.h"
#include "driver/metrics/job_step.h"

namespace hvd::driver {

// Why a world was formed.
enum class WorldCause : std::uint8_t {
  start,        // it is the first
  worker_lost,  // a worker failed, or could not go on
  host_lost,    // a host was lost, with its workers
  joined,       // workers joined at a commit, or with a restart of all
  left,         // workers left in the same ways, as they had been asked to
  replaced,     // both
  suspended,    // the last one, at which the job is suspended
};
inline constexpr std::size_t kWorldCauses = 7;

// Parts of the way into a world (event::WorldEntered).
inline constexpr std::size_t kEntryParts = 6;

class WorldMetrics {
 public:
  WorldMetrics(prometheus::Registry& registry, const JobStart& start);

  void on_step(const JobStep& step, const NamedByStep& named);
  void look(const Job& job);

 private:
  // A change that is asked for by a loss, or because workers are started again.
  struct Disruption {
    TimePoint since{};
    std::size_t size_before = 0;
  };

  void note_disruption(const JobStep& step, const NamedByStep& named);
  void on_world(const WorldDocument& world, const JobStep& step);
  void on_entry(const event::WorldEntered& entered);
  void on_effective(const WorldDocument& world, const JobStep& step);
  WorldCause cause_of(const WorldDocument& world, const JobStep& step) const;
  WorldCause cause_at_commit(const WorldDocument& world) const;
  WorldCause cause_of_loss(const WorldDocument& world, const Job& job) const;
  WorldCause cause_of_restart(const WorldDocument& world, const Job& job) const;
  void note_full_size(const WorldDocument& world, WorldCause cause, TimePoint now);

  ByLabel<prometheus::Counter, kWorldCauses> formed_;
  ByLabel<prometheus::Histogram, kWorldCauses> change_time_;
  prometheus::Histogram& replacement_time_;
  ByLabel<prometheus::Histogram, kEntryParts> entry_time_;
  prometheus::Counter& received_;
  prometheus::Counter& redone_;
  prometheus::Gauge& generation_;
  prometheus::Gauge& size_;
  prometheus::Gauge& committed_;

  std::optional<TimePoint> begun_;
  std::set<Incarnation> members_;                // of the world in force
  std::map<std::uint64_t, TimePoint> proposed_;  // when, by generation
  std::optional<Disruption> disruption_;         // since the world in force was formed
  std::optional<Disruption> too_small_;          // since the first loss that is not made good
};

}  // namespace hvd::driver
