// The agent's end of the descriptor that a worker inherits (base/protocol/worker_link.h). It never
// blocks and its memory is bounded: of messages that the worker has not read yet, only the newest
// effective world, the newest proposed one, one announcement of a stop and the newest word on
// whether there is an hvdrun are kept. Messages from the worker are not trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptors.h"
#include "base/frame.h"
#include "base/protocol/worker_link.h"
#include "base/shared_bytes.h"
#include "base/status.h"
#include "cmd/hvd-agent/event_loop.h"

namespace hvd::agent {

class WorkerChannel {
 public:
  // The messages that the worker sends. No call may destroy the channel.
  struct Listener {
    std::function<void()> initialised;
    std::function<void()> done;
    std::function<void()> ready;                  // waits for a world to join
    std::function<void()> leaves;                 // wants to leave at a commit
    std::function<void(worker_link::Left)> left;  // takes no part any more
    std::function<void(std::string host)> cannot_reach;
    std::function<void(std::uint64_t generation)> committed;
    std::function<void()> alive;            // answers a ping
    std::function<void()> activity_wanted;  // of all workers
    std::function<void(worker_link::Activity)> activity;
    std::function<void(WorkReading)> work;  // as often as the worker likes
    // The text of a CommitId, at each commit; the greatest counts. Null: nobody wants it.
    std::function<void(std::string commit)> mark = {};
    std::function<void(std::string problem)> problem;  // at most once for each kind of problem
  };

  explicit WorkerChannel(Listener listener) : listener_(std::move(listener)) {}
  WorkerChannel(const WorkerChannel&) = delete;
  WorkerChannel& operator=(const WorkerChannel&) = delete;

  // Takes over our end and writes `welcome` (whole frames, handed on as they are) into it and then
  // `world` (a frame too, or null), as much as fits; the rest follows when the worker reads. Call
  // it before the worker starts.
  Status open(EventLoop& loop, UniqueFd socket, std::string welcome, SharedBytes world);
  // `frame` is an encoded worker_link::World. One that is not older than the one of its kind that
  // waits takes its place.
  void send_world(std::uint64_t generation, bool effective, SharedBytes frame);
  void send_stop(std::string_view reason);
  // worker_link::DriverGone. Only the newest waits. A proposed world that still waits goes with the
  // hvdrun that proposed it.
  void send_driver_gone(worker_link::DriverGone message);
  // One waits at most.
  void send_ping();
  // Only the newest request waits.
  void ask_activity(std::uint32_t id);
  // Whether the worker has called hvd::init().
  bool initialised() const { return told_done_.has_value(); }
  // Reads all pending messages: those that were sent before the worker exited count.
  void receive();
  void close();

 private:
  static constexpr std::size_t kMaxFrameFromWorker = std::size_t{64} << 10;
  static constexpr int kMaxTold = 100'000;

  struct WaitingWorld {
    std::uint64_t generation = 0;
    SharedBytes frame;
  };

  void on_events(std::uint32_t events);
  // Takes the next frame that waits into writing_; false if none does.
  bool begin_next();
  void forget_what_waits();
  void flush();
  void stop_listening(std::string why);
  void handle(const Frame& frame);
  // False: no message can be read there.
  bool take(const Frame& frame);
  void tell(bool is_done);
  // False if the worker has sent too many messages; the channel then ignores it.
  bool may_tell();
  void update_watch();

  Listener listener_;
  EventLoop* loop_ = nullptr;
  UniqueFd socket_;
  Watch watch_;
  FrameDecoder decoder_{kMaxFrameFromWorker};
  bool listening_ = true;
  SharedBytes writing_;  // begun: it goes out whole
  std::size_t written_ = 0;
  SharedBytes waiting_first_world_;  // behind the welcome, and before all else
  std::optional<std::string> waiting_stop_;
  std::optional<worker_link::DriverGone> waiting_driver_gone_;
  bool waiting_ping_ = false;
  std::optional<std::uint32_t> waiting_question_;
  std::optional<WaitingWorld> waiting_effective_;
  std::optional<WaitingWorld> waiting_proposed_;
  bool said_that_it_does_not_read_ = false;
  bool said_unknown_kind_ = false;
  std::optional<bool> told_done_;  // what was told last: initialised (false) or done (true)
  bool told_ready_ = false;
  bool told_leaves_ = false;
  bool told_left_ = false;
  std::uint64_t told_committed_ = 0;  // the newest generation
  int told_ = 0;
};

}  // namespace hvd::agent
