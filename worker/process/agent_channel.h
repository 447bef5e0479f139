// The worker's end of its link to the agent (base/protocol/worker_link.h). One per process, for the
// rest of its life: the agent notices when this process ends.
//
// A thread watches the descriptor, and the time in which this process runs
// (base/machine/own_time.h). When the agent goes, the job is over, and the process ends at once
// with one line on stderr. All calls are safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/frame.h"
#include "base/frame_sender.h"
#include "base/machine/life_lock.h"
#include "base/protocol/worker_link.h"
#include "base/protocol/world_document.h"
#include "base/status.h"
#include "rendezvous/client.h"
#include "runtime/core/world_spec.h"
#include "worker/process/high_water.h"

namespace hvd::worker {

class AgentChannel final : public MarkKeeper {
 public:
  // `descriptor` is the text of HVD_WORKER_FD. Takes the descriptor over, reads the Welcome that
  // lies there and the World that follows it, and starts to watch. Fails if another process of this
  // worker has read it before. `life_lock` is the text of HVD_LIFE_FD, or empty: the channel's
  // thread holds that lock.
  static Result<AgentChannel*> open(const std::string& descriptor, const std::string& life_lock);
  // False in a process that was forked from the one that opened the channel.
  bool is_of_this_process() const;

  const worker_link::Welcome& welcome() const { return welcome_; }
  // The options of a client of the job's rendezvous, which goes with the service to other hosts.
  rendezvous::ClientOptions rendezvous_options() const;
  // The world that came with the Welcome; nothing if none did.
  const std::optional<WorldDocument>& first_world() const { return first_world_; }
  // Its key, sealed for this worker; empty if it is no member of it.
  const std::string& first_key() const { return first_key_; }
  // Why the job is being stopped; nothing while it is not.
  std::optional<std::string> stop_reason() const;
  // Blocks until the job is being stopped; false if it is not at the deadline.
  bool wait_for_stop(TimePoint deadline) const;

  // What the agent has said last of hvdrun (worker_link::DriverGone).
  bool driver_is_gone() const override { return driver_is_gone_; }
  bool wait_for_driver(TimePoint deadline) const override;
  Status keep_mark(const CommitId& id) override;

  // Called on the channel's thread, of worlds also for those that came before this call, on this
  // one. Once.
  struct Listener {
    std::function<void(const worker_link::World&)> world;
    std::function<void()> stop;
    std::function<void(bool gone)> driver_gone;
    // When `late` is to be asked, if the agent has said nothing until then; it returns why this
    // process has to end, or nothing.
    std::function<TimePoint()> late_at;
    std::function<std::optional<std::string>()> late;
  };
  void listen(Listener listener);

  // Sets the function that tells the activity of this process when the agent asks; it runs on the
  // channel's thread, so it must not wait. `wants_dump`: a person wants to know, also the content
  // of the flight recorder. Before this was called the answer is that the worker is in no world
  // yet.
  using Activity = runtime::RankActivity;
  void answer_by(std::function<Activity(bool wants_dump)> activity);

  // The work of this process so far is sent about once a second, and before it says that it is done
  // or has left. Safe from any thread; it must not wait.
  void report_work_by(std::function<WorkReading()> reading);

  // One line on stderr, and the end: at once, whatever other threads do.
  [[noreturn]] static void end_process(const std::string& why);

  // The work so far, at once.
  void send_work();
  Status send_initialised();
  Status send_done();
  Status send_ready();
  Status send_leave();
  // worker_link::Left.
  Status send_left(const std::string& reason, bool for_good = false);
  // worker_link::Unreachable.
  Status send_unreachable(const std::string& host);
  Status send_committed(std::uint64_t generation);
  Status send_activity_wanted();
  // Unasked, at the end of a world.
  Status send_activity(const Activity& activity);

 private:
  Status send_activity(std::uint32_t id, const Activity& activity);
  AgentChannel(UniqueFd fd, FrameDecoder decoder, worker_link::Welcome welcome,
               std::optional<WorldDocument> first_world, std::string first_key,
               std::optional<LifeLock> life_lock);
  void watch();
  void handle(const Frame& frame);
  void handle(const worker_link::DriverGone& message);
  TimePoint late_at() const;
  void end_if_late();
  SocketAddress rendezvous() const;
  Status send(const std::string& frame);

  const pid_t opener_;
  UniqueFd fd_;
  std::optional<LifeLock> life_lock_;
  FrameDecoder decoder_;  // of the watching thread, as is the next member
  TimePoint report_at_{};
  const worker_link::Welcome welcome_;
  const std::optional<WorldDocument> first_world_;
  const std::string first_key_;
  std::mutex send_mutex_;
  FrameSender sender_;  // under send_mutex_
  mutable std::mutex mutex_;
  mutable std::condition_variable stopped_;
  mutable std::condition_variable driver_came_;
  std::atomic<bool> driver_is_gone_ = false;  // written under mutex_, as is mark_
  CommitId mark_;                             // the newest
  SocketAddress rendezvous_;
  std::vector<worker_link::World> unheard_;  // until listen()
  Listener listener_;
  std::function<Activity(bool wants_dump)> activity_;
  std::function<WorkReading()> work_;
  std::optional<std::string> stop_reason_;
  // Watches until the last moment of the process, and is therefore never joined: while the handlers
  // of exit() and the destructors of other libraries run, it still answers the agent, which would
  // else take the process for one that hangs, and ends it when the agent goes.
  std::thread watcher_;
};

}  // namespace hvd::worker
