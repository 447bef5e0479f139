// Writes the committed state of a job that goes on to its state file, every so often, on rank 0. A
// commit at which that is due copies the state, and a thread writes the copy while the program goes
// on. An error is a warning, and the state is written again when it is due the next time.
//
// For one thread; the destructor ends what is being written.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/threads.h"
#include "worker/elastic/saved_state.h"
#include "worker/elastic/store.h"

namespace hvd::worker {

class StateSaver {
 public:
  // Once `is_given_up` it may return early: aborted. Its message continues "cannot".
  using Write =
      std::function<Status(const StateToSave& state, const std::atomic<bool>& is_given_up)>;

  // `every`: 0: it is never due.
  StateSaver(Duration every, Write write) : every_(every), write_(std::move(write)) {}
  ~StateSaver();
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  // All begin now. Otherwise it is due at the first commit: nobody here knows when an earlier rank
  // 0 has written.
  void count_from(TimePoint now) { last_ = now; }
  // And nothing is being written.
  bool is_due(TimePoint now) const;
  // Copies the newest state of the store, and begins to write that. Not while it is_writing().
  void begin(Store& store, std::uint64_t step, TimePoint now);
  bool is_writing() const { return is_writing_; }

  // What is being written leaves no file behind, unless that has its name already, and it is due at
  // once. Does not wait for the disk.
  void give_up();
  void wait();
  // The memory of the copy is given back. Not while it is_writing().
  void clear();

 private:
  void write_copy(std::uint64_t shape, std::uint64_t step);
  void report(const Status& saved);

  const Duration every_;
  const Write write_;
  std::optional<TimePoint> last_;  // when the state was copied
  Copy copy_;                      // of the thread while it is_writing_
  bool has_warned_ = false;        // likewise; since the last success
  std::atomic<bool> is_writing_ = false;
  std::atomic<bool> is_given_up_ = false;
  std::optional<ThreadGroup> thread_;
};

}  // namespace hvd::worker
