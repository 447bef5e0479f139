// Records what happens to the tensors of one rank: the one source of the flight recorder and of the
// timeline. World owns it. The executor reports every batch that has ended; any thread may query
// it.
//
// The last kKept operations that ended are always kept here; the tensor queue knows those in
// flight, and how far they have come. While a timeline is recorded, each batch that ends is also
// encoded (trace/batch.h) for the control loop to send; if the loop does not fetch them soon
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

// The record of one batch while the executor runs it. It belongs to the thread that made it; after
// leave_thread() another thread may continue with it.
class TracedBatch {
 public:
  // Records nothing if `recorder` is null.
  TracedBatch(Recorder* recorder, Nanoseconds begun);
  ~TracedBatch() { leave_thread(); }
  TracedBatch(const TracedBatch&) = delete;
  TracedBatch& operator=(const TracedBatch&) = delete;

  void by(std::string_view operation) { operation_ = operation; }
  // Steps of this thread no longer belong to the batch.
  void leave_thread();
  // The batch is over; its results may be delivered from now on.
  void stop();
  // Hands the record, and the response's tensors, to the recorder.
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

  // `in_flight` visits all entries in flight. `on_pending` is called when there is something to
  // fetch, and was nothing before.
  Recorder(VisitInFlight in_flight, std::function<void()> on_pending)
      : in_flight_(std::move(in_flight)), on_pending_(std::move(on_pending)) {}

  // These entries failed before the executor took them.
  void fail(std::span<const Entry> entries, const Status& why);
  // This many responses have been handed to the executor.
  void submitted(std::size_t responses) { submitted_ += responses; }
  // All of them have ended.
  bool idle() const { return served_ == submitted_; }

  // Records batches with a number beyond `after` and, once stop_after() was called, not beyond
  // `until`; then on_pending is also called when all submitted responses have ended.
  void start(std::uint64_t after);
  void stop_after(std::uint64_t until) { until_ = until; }
  void stop();
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  // The content of a frame: a few batches, so that other frames need not wait long behind it.
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
  // Also records the entries in flight, as if they ended now.
  void flush_in_flight();

  struct View {
    std::string name;
    Kind kind = Kind::allreduce;
    DataType type = DataType::uint8;
    int process_set = kGlobalSet;
    std::size_t bytes = 0;
    Nanoseconds enqueued = 0, asked = 0, decided = 0, begun = 0, ended = 0;
    std::uint64_t batch = 0;  // the number of the response; 0: no response
    std::uint32_t batch_size = 0;
    Status error;
  };
  // The oldest first; operations in flight come last.
  std::vector<View> operations() const;

 private:
  friend class TracedBatch;
  // Operations that ended in one batch.
  struct Ended {
    std::vector<SharedTensor> tensors;
    std::vector<EntryTimes> times;
    std::vector<Status> errors;  // empty: all succeeded
    // Bytes of this rank, where the ranks agree on no size (is_ragged()); empty: as in `tensors`.
    std::vector<std::size_t> own_bytes;
    std::uint64_t number = 0;
    Nanoseconds when = 0;
  };
  void keep(const TracedBatch& run, Response& response, int set_size, const Entries& entries,
            std::span<const Outcome> outcomes);
  void remember(Ended ended);
  std::vector<Entry> in_flight_entries() const;  // copies without pointers to memory
  // Calls `write` to add the tensors, if there is room. Returns true if on_pending is to be called.
  template <typename Write>
  bool append(const Batch& batch, std::size_t tensors, Write write);
  void end_chunk();  // under mutex_
  void append_alone(const Batch& batch, const Request& request, const EntryTimes& times,
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
  std::deque<Ended> ended_;      // as many batches as hold kKept operations
  std::size_t ended_count_ = 0;  // operations
  BatchWriter writer_;           // the next chunk
  Pending pending_;
  std::size_t pending_bytes_ = 0;  // of whole chunks
};

}  // namespace hvd::runtime::trace
