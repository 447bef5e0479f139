// The work of a job's workers as the driver knows it: what they report, and which of them are slow.
// Owned by the driver, on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/protocol/agent_link.h"
#include "base/protocol/world_document.h"
#include "base/protocol/world_entry.h"
#include "driver/job/job.h"
#include "driver/job/job_io.h"
#include "driver/work/slow_ranks.h"
#include "driver/work/work_book.h"

namespace hvd::driver {

// Puts together what the members of a world report of their way into it (base/protocol/
// world_entry.h). The way is over when each member has ended its first step. Pure.
class WorldEntries {
 public:
  // `incarnation` is a member of `world`, which is in force. Returns the event that is to be told
  // to the job when this was the last of its members: once for each world at most.
  std::optional<event::WorldEntered> add(const WorldDocument& world, Incarnation incarnation,
                                         const WorldEntry& entry);

 private:
  std::uint64_t generation_ = 0;
  std::set<Incarnation> there_;
  event::WorldEntered so_far_;
};

class WorkWatch {
 public:
  // `warn` and `note` are told, in a sentence, that a rank is slow, and that it is slow no longer.
  using Say = std::function<void(std::string_view text)>;
  // `job` outlives this.
  WorkWatch(const Job& job, Say warn, Say note)
      : job_(job), warn_(std::move(warn)), note_(std::move(note)) {}

  // Reports on workers that this host does not have are ignored. Returns what the job is to be
  // told, if the last member of its world has come into it.
  std::optional<event::WorldEntered> reported(HostIndex host,
                                              const agent_link::WorkReports& reports,
                                              TimePoint now);
  // What the job is to be told of the state that a worker of this host writes. Nothing: no more
  // than before.
  std::optional<event::Saving> saving(HostIndex host, const agent_link::WorkReports& reports);
  // To be called after the job has handled the event.
  void on_event(const Event& event);
  // Looks for slow ranks, at most once in SlowRanks::kRound. Returns what the job is to be told.
  std::vector<event::FoundSlow> look(TimePoint now);

  // Members of the world in force that receive its state from the others.
  struct Transfer {
    std::size_t workers = 0;
    std::uint64_t expected = 0;  // bytes, of all these members
    std::uint64_t received = 0;
    double per_second = 0;  // bytes; 0: not known yet
  };
  std::optional<Transfer> transfer() const;

  const WorkBook& book() const { return book_; }
  const SlowRanks& slow_ranks() const { return slow_ranks_; }

 private:
  void end(Incarnation incarnation);

  const Job& job_;
  Say warn_;
  Say note_;
  WorkBook book_;
  SlowRanks slow_ranks_;
  WorldEntries entries_;
  std::set<Incarnation> receiving_;  // by their newest reports
  std::map<Incarnation, StateSaving> saving_;
  TimePoint look_at_{};
};

// "2 workers to receive the state: 312 MiB of 900 MiB, 104 MiB/s"
std::string transfer_text(const WorkWatch::Transfer& transfer);

struct SlowRankText {
  std::string worker;
  std::string host;
  int rank = 0;
  double share = 0;
};
// "rank 3 on b#1 is slow: the other ranks wait for it for 61 % of the time". Pure.
std::string slow_text(const std::vector<SlowRankText>& of_one_host);

}  // namespace hvd::driver
