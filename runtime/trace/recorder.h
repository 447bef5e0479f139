// What happens to the tensors of one rank: the one source of the flight recorder and of the
// timeline. World owns it. The executor tells it of every batch that has ended; any thread may ask.
//
// The last kKept operations that ended stay here, always; what is in flight, and how far it has
// come, the tensor queue knows. While a timeline is recorded, each batch that ends is also written
// down in bytes (trace/batch.h), which the control loop sends on; if they are not fetched soon
// enough, whole batches are dropped and counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/activity.h"
#include "runtime/core/request.h"
#include "runtime/trace/batch.h"

namespace hvd::runtime::trace {

class Recorder;

// One response on its way through the executor. Belongs to the thread that made it; from
// leave_thread() on another one may go on with it.
class Run {
 public:
  // Nobody listens if there is no recorder.
  Run(Recorder* recorder, Nanoseconds begun);
  ~Run() { leave_thread(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void by(std::string_view operation) { operation_ = operation; }
  // What this thread does from now on is no step of it.
  void leave_thread();
  // It is over; what came of it may be told to whoever waits.
  void stop();
  // Keeps what is known of it, and the response's tensors.
  void finish(Response& response, int set_size, const Entries& entries,
              std::span<const Outcome> outcomes);

 private:
  friend class Recorder;
  Recorder* recorder_;
  std::string_view operation_;
  Nanoseconds begun_ = 0;
  Nanoseconds ended_ = 0;
  std::vector<Step> steps_;
};

class Recorder {
 public:
  static constexpr std::size_t kKept = 1000;
  static constexpr std::size_t kChunk = std::size_t{128} << 10;  // without names
  static constexpr std::size_t kMaxPending = std::size_t{16} << 20;
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();
  using VisitInFlight = std::function<void(const std::function<void(const Entry&)>& visitor)>;

  // `in_flight` visits all that is in flight. `on_pending` is called when there is something to
  // fetch, and was not before.
  Recorder(VisitInFlight in_flight, std::function<void()> on_pending)
      : in_flight_(std::move(in_flight)), on_pending_(std::move(on_pending)) {}

  // These have failed before anybody took them.
  void fail(std::span<const Entry> entries, const Status& why);
  // So many responses have been handed to the executor.
  void submitted(std::size_t responses) { submitted_ += responses; }
  // All of them have ended.
  bool idle() const { return served_ == submitted_; }

  // The timeline wants what has a number beyond `after` and, as soon as that is known, not beyond
  // `until`; then on_pending is also called when all that was submitted has ended.
  void start(std::uint64_t after);
  void stop_after(std::uint64_t until) { until_ = until; }
  void stop();
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  // What a frame carries: a few, so that nothing has to wait long behind it.
  struct Chunk {
    std::string batches;  // trace/batch.h
    std::uint32_t tensors = 0;
  };
  struct Pending {
    std::vector<Chunk> chunks;
    std::uint32_t dropped = 0;  // tensors
  };
  Pending fetch();
  bool has_pending() const;
  // Also what is in flight, as if it ended now.
  void flush_open();

  struct View {
    std::string name;
    Kind kind = Kind::allreduce;
    DataType type = DataType::uint8;
    int process_set = kGlobalSet;
    std::size_t bytes = 0;
    Nanoseconds enqueued = 0, asked = 0, decided = 0, begun = 0, ended = 0;
    std::uint64_t batch = 0;  // the number of the response; 0: there was none
    std::uint32_t batch_size = 0;
    Status error;
  };
  // The oldest first; what is in flight comes last.
  std::vector<View> operations() const;

 private:
  friend class Run;
  // Operations that ended together: what they were, and how it went.
  struct Ended {
    std::vector<SharedTensor> tensors;
    std::vector<Course> courses;
    std::vector<Status> errors;  // empty: there was none
    std::uint64_t number = 0;
    Nanoseconds when = 0;
  };
  void keep(const Run& run, Response& response, int set_size, const Entries& entries,
            std::span<const Outcome> outcomes);
  void remember(Ended ended);
  std::vector<Entry> open() const;  // what is in flight; without its memory
  // `write` adds them, if there is room. `on_pending` is called afterwards if it returns true.
  template <typename Write>
  bool append(const Batch& batch, std::size_t tensors, Write write);
  void end_chunk();  // under mutex_
  void append_alone(const Batch& batch, const Request& request, const Course& course,
                    std::string_view error);
  bool wanted(std::uint64_t number) const {
    return recording() && number > after_ && number <= until_;
  }

  VisitInFlight in_flight_;
  std::function<void()> on_pending_;
  std::atomic<bool> recording_ = false;
  std::atomic<std::uint64_t> after_ = 0;
  std::atomic<std::uint64_t> until_ = kForever;
  std::atomic<std::uint64_t> submitted_ = 0;
  std::atomic<std::uint64_t> served_ = 0;

  mutable std::mutex mutex_;
  std::deque<Ended> ended_;      // as many as it takes for kKept operations
  std::size_t ended_count_ = 0;  // operations
  BatchWriter writer_;           // the next chunk
  Pending pending_;
  std::size_t pending_bytes_ = 0;  // of whole chunks
};

}  // namespace hvd::runtime::trace
