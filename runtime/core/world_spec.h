// The specification of a world: its members and their settings. Plain values; equal on all members
// except for `rank` and the callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/security/crypto.h"
#include "runtime/core/config.h"
#include "runtime/core/interrupt.h"
#include "runtime/core/link_speed.h"
#include "runtime/core/work_meter.h"

namespace hvd::runtime {

struct Member {
  std::string worker;   // "host#slot", named in errors
  std::string host;     // named in errors
  std::string address;  // an IP address where the others reach it
};

// The activity of a rank, in words for a person.
struct RankActivity {
  std::uint64_t generation = 0;  // of its world; 0: it is in none
  std::string in_flight;         // its operations in flight
  std::string last;              // the operation that ended last
  std::string missing;           // on rank 0: which ranks have not asked for what others wait for
};

// A process set of an earlier world.
struct RestoredSet {
  std::vector<int> ranks;   // in this world
  bool by_members = false;  // its members alone have added it, and remove it
};

struct WorldSpec {
  WorldSpec(int own_rank, std::vector<Member> all, std::uint64_t number, const Token& job_token)
      : rank(own_rank), members(std::move(all)), generation(number), token(job_token) {}

  int rank;
  std::vector<Member> members;  // members[r] is rank r
  std::uint64_t generation;     // peers of another generation are refused
  Token token;
  Config config;
  // The ranks of each process set that exists from the start, and whether others may be added
  // later: all ranks must have the same here.
  std::vector<std::vector<int>> process_sets;
  bool dynamic_process_sets = true;
  // There was a world before this one: a file that only observes the work (the timeline, the
  // autotuner's log, the flight recorder) and cannot be written is a warning, and no error.
  bool under_way = false;
  // Used instead of `process_sets` if next_process_set is not 0: the sets of an earlier world, by
  // number.
  std::map<int, RestoredSet> restored_sets;
  int next_process_set = 0;
  // Can end the world even while it is being formed; null: no interrupt. With stock Gloo it takes
  // effect late.
  std::shared_ptr<Interrupt> interrupt;
  // Called at most once, on a thread of the world, when the world fails because this rank did not
  // make the calls that others wait for, or could not reach the rank that it has to connect to.
  // `why` continues a sentence that begins with the rank.
  std::function<void(const std::string& why)> on_own_stall = {};
  // A host that this rank could not connect to in time, or whose data it missed when a data
  // connection made the world fail; it may be sound. Once for each host, on any thread.
  std::function<void(const std::string& host)> on_unreachable = {};
  // Called at most once, on a thread of the world, when the world fails: what this rank did then.
  // The operations in flight fail after the call.
  std::function<void(const RankActivity& activity)> on_failure = {};
  // Called on a thread of the world when a process set has come or gone, on all ranks and before
  // the call that has asked for it ends. `ranks`: of a new one; null: it was removed.
  std::function<void(int process_set, const std::vector<int>* ranks, bool by_members)>
      on_set_changed = {};
  // Called on a thread of the world when a signal has asked for the flight recorder.
  std::function<void()> on_dump_signal = {};

  // Counts the work of this rank; never null.
  std::shared_ptr<WorkMeter> meter = std::make_shared<WorkMeter>();

  // Measures the links between the hosts of this world; null: World makes one.
  std::shared_ptr<LinkMeter> links = nullptr;

  int size() const { return static_cast<int>(members.size()); }
  // Several hosts, and several ranks on one of them: only then do hierarchical operations differ
  // from flat ones.
  bool has_multi_rank_hosts() const;
};

}  // namespace hvd::runtime
