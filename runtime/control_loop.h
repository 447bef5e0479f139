// The thread that negotiates. On rank 0 it holds the coordinator and the connections of all
// members; elsewhere one connection to rank 0. It sleeps until something happens: a request was
// enqueued, a frame arrived, a batch has ended, somebody is gone. An idle world sends nothing.
//
// It alone decides that the world has failed: it sets the verdict, tells the others, closes the
// queue, and calls on_failure, which aborts the operations.
//
// open() and start() once, in this order; stop() ends the thread. The other calls are safe from any
// thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "runtime/connection.h"
#include "runtime/coordinator.h"
#include "runtime/executor.h"
#include "runtime/lobby.h"
#include "runtime/messages.h"
#include "runtime/poller.h"
#include "runtime/tensor_queue.h"
#include "runtime/verdict.h"
#include "runtime/world.h"

namespace hvd::runtime {

class ControlLoop {
 public:
  ControlLoop(const WorldSpec& spec, TensorQueue& queue, Verdict& verdict, Executor& executor,
              std::function<void()> on_failure);
  ~ControlLoop() { stop(); }
  ControlLoop(const ControlLoop&) = delete;
  ControlLoop& operator=(const ControlLoop&) = delete;

  // Rank 0 of several listens; its address, as the others need it, is address().
  Status open();
  const std::string& address() const { return address_; }
  // Starts the thread; `coordinator` is address() of rank 0. Forming must end by `deadline`.
  Status start(const std::string& coordinator, TimePoint deadline);
  // Blocks until all connections that this rank needs are there, or the world has failed.
  Failure wait_formed();

  void wake() { poller_.wake(); }
  // A data connection broke; if nobody turns out to be gone, this is what everybody is told.
  void suspect(const Status& why);
  // The world has failed.
  void fail(const Failure& why);
  // This rank wants no more; blocks until all do.
  Failure leave(TimePoint deadline);
  // Leaves at once if leave() has not ended well; joins the thread.
  void stop();

 private:
  bool is_coordinator() const { return spec_.rank == 0; }
  std::string who(int rank) const;
  Failure lost(int rank, const Status& how) const;

  void loop();
  void take_commands();
  void drain_queue(TimePoint now);
  void negotiate(TimePoint now);
  void check_left();
  TimePoint check_timers(TimePoint now);
  void handle(const Poller::Event& event, TimePoint now);
  void handle_arrival(Lobby::Arrival arrival);
  void handle_frames(int rank, TimePoint now);
  Status handle_frame(int rank, const Frame& frame, TimePoint now);
  Status join_coordinator(const SocketAddress& where, TimePoint deadline);
  void send(int rank, const std::string& bytes);
  void send_all(const std::string& bytes);
  void drop(int rank);
  void suspect_now(const Failure& why, TimePoint now);
  void enter_failure(const Failure& why);
  void set_formed();
  void linger();

  const WorldSpec& spec_;
  TensorQueue& queue_;
  Verdict& verdict_;
  Executor& executor_;
  std::function<void()> on_failure_;

  Poller poller_;
  std::string address_;
  std::thread thread_;

  // Of the thread.
  std::optional<Coordinator> coordinator_;            // rank 0
  std::optional<Lobby> lobby_;                        // rank 0 of several, while forming
  std::map<int, std::unique_ptr<Connection>> peers_;  // by rank
  std::map<int, int> rank_of_fd_;
  TimePoint forming_until_ = kNever;
  TimePoint suspicion_until_ = kNever;
  Failure suspicion_;
  bool leave_sent_ = false;

  // Between threads.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Failure> failures_;   // commands of fail()
  std::vector<Status> suspicions_;  // commands of suspect()
  bool leaving_ = false;            // command of leave()
  bool stopping_ = false;           // command of stop()
  bool formed_ = false;
  bool left_ = false;
};

}  // namespace hvd::runtime
