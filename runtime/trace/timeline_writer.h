// Rank 0's thread that writes the timeline. Incoming events wait in memory, up to kMaxWaiting. The
// thread runs at idle priority until half of that is full or a caller waits for it to finish, so
// that a job that needs all of its cores is not slowed down by its own record. If even that is not
// enough, events are dropped, and the timeline says how many.
//
// add(), mark_cycle() and finish() are safe from any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/trace/timeline_file.h"
#include "runtime/trace/timeline_text.h"

namespace hvd::runtime::trace {

class TimelineWriter {
 public:
  static constexpr std::size_t kMaxWaiting = std::size_t{64} << 20;

  static Result<std::unique_ptr<TimelineWriter>> open(const std::string& path,
                                                      const WorldSpec& spec);
  ~TimelineWriter() { (void)finish(); }
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  void add(Events events);
  void mark_cycle(Nanoseconds when, std::uint64_t number);
  // Blocks until all events are in the file, and ends the thread. An error has been logged when it
  // happened.
  Status finish();

 private:
  struct Item {
    Events events;
    Nanoseconds cycle = 0;  // not 0: the item is a cycle mark at this time
    std::uint64_t number = 0;
  };
  TimelineWriter(TimelineFile file, TimelineText text)
      : file_(std::move(file)), text_(std::move(text)) {}
  void put(Item item);
  void loop();
  void set_urgent(bool really);
  void write();

  TimelineFile file_;  // of the thread, as are the next three
  TimelineText text_;
  bool urgent_ = true;
  bool is_broken_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::size_t waiting_ = 0;  // bytes in items_
  std::vector<std::uint32_t> dropped_;
  bool finishing_ = false;
  Status failed_;
  std::thread thread_;
};

}  // namespace hvd::runtime::trace
