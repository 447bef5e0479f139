// What happens to the tensors of one rank: the one source of the flight recorder and of the
// timeline. World owns it. The pipeline tells it, from whichever thread is at work; any thread may
// ask.
//
// Every operation has a record from enqueue() to its end. Records of what is in flight and of the
// last kKept that ended stay here, always. While a timeline is recorded, each batch that ends is
// also written down in bytes (trace/batch.h), which the control loop sends on; if they are not
// fetched soon enough, whole batches are dropped and counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/request.h"
#include "runtime/trace/activity.h"

namespace hvd::runtime::trace {

// The times of what is in flight are set by the thread that has it, and read by any; the rest is
// guarded by the recorder.
struct Operation {
  std::string name;
  Kind kind = Kind::allreduce;
  DataType type = DataType::uint8;
  int process_set = kGlobalSet;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
  Nanoseconds enqueued = 0;
  std::atomic<Nanoseconds> asked = 0;    // the negotiation heard of it
  std::atomic<Nanoseconds> decided = 0;  // all ranks are ready
  std::atomic<Nanoseconds> begun = 0;    // its batch is run
  Nanoseconds ended = 0;
  std::uint64_t batch = 0;  // the number of the response; 0: there was none
  std::uint32_t batch_size = 0;
  Status error;
  std::list<Operation>::iterator self;
};

class Recorder;

// One response on its way through the executor's thread.
class Run {
 public:
  // `entries`: in the order of the response's tensors, if they are all there.
  Run(Recorder* recorder, const Response& response, int set_size, std::span<const Entry> entries);
  ~Run() { steps_of_this_thread = nullptr; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void by(std::string_view operation) { operation_ = operation; }
  // It is over; what came of it may be told to whoever waits.
  void stop();
  // Keeps what is known of it.
  void finish(std::span<const Entry> entries, std::span<const Outcome> outcomes);

 private:
  friend class Recorder;
  Recorder* recorder_;
  const Response& response_;
  int set_size_;
  std::string_view operation_;
  Nanoseconds begun_ = 0;
  Nanoseconds ended_ = 0;
  std::vector<Step> steps_;
};

class Recorder {
 public:
  static constexpr std::size_t kKept = 1000;
  static constexpr std::size_t kChunk = std::size_t{64} << 10;
  static constexpr std::size_t kMaxPending = std::size_t{16} << 20;
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

  // `on_pending` is called when there is something to fetch, and was not before.
  explicit Recorder(std::function<void()> on_pending = [] {})
      : on_pending_(std::move(on_pending)) {}

  // Gives each its record; and takes it back, because they were refused.
  void begin(std::span<Entry> entries);
  void forget(std::span<Entry> entries);
  // All that has begun has gone to the negotiation.
  void asked();
  // These have failed before anybody took them.
  void fail(std::span<const Entry> entries, const Status& why);
  // Responses up to this one have been handed to the executor.
  void submitted(std::uint64_t number) { submitted_ = number; }
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
    std::string batches;  // one encoded Batch after another
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
    std::uint64_t batch = 0;
    std::uint32_t batch_size = 0;
    Status error;
  };
  // The oldest first; what is in flight comes last.
  std::vector<View> operations() const;

 private:
  friend class Run;
  void keep(const Run& run, std::span<const Entry> entries, std::span<const Outcome> outcomes);
  void end(Operation& operation, Nanoseconds now, const Status& error);  // under mutex_
  void append(std::string_view batch, std::size_t tensors);
  bool append_locked(std::string_view batch, std::size_t tensors);  // true: there was nothing
  bool wanted(std::uint64_t number) const {
    return recording() && number > after_ && number <= until_;
  }

  std::function<void()> on_pending_;
  std::atomic<bool> recording_ = false;
  std::atomic<std::uint64_t> after_ = 0;
  std::atomic<std::uint64_t> until_ = kForever;
  std::atomic<std::uint64_t> submitted_ = 0;
  std::atomic<std::uint64_t> served_ = 0;

  mutable std::mutex mutex_;
  std::list<Operation> open_;
  std::list<Operation> ended_;
  Pending pending_;
  std::size_t pending_bytes_ = 0;
};

}  // namespace hvd::runtime::trace
