// Rank 0's thread that opens and writes the timeline. Incoming events wait in memory, up to
// kMaxWaiting. The thread runs at idle priority until half of that is full or a caller waits for it
// to finish, so that a job that needs all of its cores is not slowed down by its own record. If
// even that is not enough, events are dropped, and the timeline says how many. A thread that hangs
// in its file is left behind.
//
// add(), mark_cycle() and finish() are safe from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/threads.h"
#include "runtime/core/world_spec.h"
#include "runtime/trace/frames.h"

namespace hvd::runtime::trace {

class TimelineWriter {
 public:
  static constexpr std::size_t kMaxWaiting = std::size_t{64} << 20;
  // An operation on the file that takes longer hangs.
  static constexpr std::chrono::seconds kPatience{5};

  // deadline_exceeded: the file hangs. `under_way`: an error of the file is a warning, and nobody
  // waits for it, since a timeline must not end the work of others.
  static Result<std::unique_ptr<TimelineWriter>> open(const std::string& path,
                                                      const WorldSpec& spec, bool under_way);
  ~TimelineWriter() { (void)finish(); }
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  void add(Events events);
  void mark_cycle(Nanoseconds when, std::uint64_t number);
  // Blocks until all events are in the file, or it hangs, and ends the thread. An error has been
  // logged when it happened.
  Status finish();

 private:
  struct Item {
    Events events;
    Nanoseconds cycle = 0;  // not 0: the item is a cycle mark at this time
    std::uint64_t number = 0;
  };
  class Loop;
  explicit TimelineWriter(std::shared_ptr<Loop> loop);

  std::shared_ptr<Loop> loop_;  // shared with the thread
  ThreadGroup threads_;         // one
};

}  // namespace hvd::runtime::trace
