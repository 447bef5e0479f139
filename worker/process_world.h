// The one world of this process: what init() makes and shutdown() ends. All calls are safe from any
// thread. It is never destroyed, since threads may still use it while the process ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>

#include <hvd/hvd.h>

#include "base/protocol/world_document.h"
#include "base/status.h"
#include "rendezvous/client.h"
#include "runtime/world.h"
#include "worker/agent_channel.h"
#include "worker/settings.h"

namespace hvd::worker {

// Where this process stands among the others.
struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool homogeneous = true;
};

class ProcessWorld {
 public:
  static ProcessWorld& instance();

  Status init(const InitOptions& options);
  // Leaves the world, if there is one. Throws InvalidArgumentError on a thread of hvd.
  void shutdown();
  // The world has failed through another rank. Gives hvdrun a moment to stop the job because of
  // what happened there: if this rank ended first, it would be taken for the cause.
  void await_stop_of_job();
  // Nothing before init() and after shutdown().
  std::shared_ptr<runtime::World> world() const;
  // The same; throws NotInitializedError, which names the call, instead of returning nothing.
  std::shared_ptr<runtime::World> world_for(std::string_view call) const;
  bool has_dynamic_sets() const;
  Result<Place> place() const;
  // "allreduce.noname.0", then 1, ...: counted anew by each init(), for each call.
  std::string next_name(std::string_view call);
  // From 0 again: all have joined, after however many calls each.
  void restart_names();

 private:
  ProcessWorld() = default;
  void end_of_program(int exit_code);
  Status init_alone(const InitOptions& options);
  Status init_as_worker(const std::string& descriptor, const InitOptions& options);
  Result<WorldDocument> read_document(rendezvous::Client& client, TimePoint deadline);
  Status join(runtime::WorldSpec spec, const Settings& settings, const InitOptions& options,
              runtime::Exchange& exchange);

  std::mutex lifecycle_mutex_;       // held through init() and shutdown()
  AgentChannel* agent_ = nullptr;    // under lifecycle_mutex_ and mutex_; set once
  pid_t agents_worker_ = -1;         // under both, too: who opened agent_
  std::uint64_t generation_ = 0;     // under lifecycle_mutex_: of round_
  std::uint64_t round_ = 0;          // under lifecycle_mutex_: how often this generation was joined
  bool at_exit_registered_ = false;  // under lifecycle_mutex_

  mutable std::mutex mutex_;
  std::shared_ptr<runtime::World> world_;
  std::chrono::milliseconds shutdown_timeout_{};
  Place place_;
  TimePoint patience_until_ = kNever;  // of await_stop_of_job(), in this world
  pid_t owner_ = -1;                   // a forked child has the memory, but not the threads
  bool dynamic_sets_ = false;
  std::string last_failure_;  // of the world that was left last; empty: it had none
  std::map<std::string, std::uint64_t, std::less<>> unnamed_;
};

}  // namespace hvd::worker
