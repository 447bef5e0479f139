// The newest events of a job, numbered from 1, for pages that show them as they come
// (page_server.h). Each reader remembers the number of the last event that it has, so that a reader
// costs no memory here; one that is too slow misses the events that were dropped meanwhile.
//
// A value, for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace hvd::driver {

class EventBuffer {
 public:
  struct Limits {
    std::size_t events = 10'000;
    std::size_t bytes = std::size_t{8} << 20;
  };

  EventBuffer() : EventBuffer(Limits()) {}
  explicit EventBuffer(Limits limits) : limits_(limits) {}

  // Drops the oldest events as far as the limits demand it; an event that is larger than all that
  // may be kept is there until the next one comes.
  void add(std::string event);

  std::size_t size() const { return events_.size(); }
  std::size_t bytes() const { return bytes_; }
  // 0: there has been no event.
  std::uint64_t newest() const { return newest_; }

  // The events for a reader that has all events up to number `last`.
  struct Batch {
    std::uint64_t missed = 0;  // events that follow `last` and have been dropped
    std::string text = {};     // the next ones as server-sent events, with their numbers as ids
    std::uint64_t last = 0;    // the number of the last one in `text`, or where the reader was
  };
  // At most so many bytes of events, but one event at least if there is one.
  Batch after(std::uint64_t last, std::size_t most_bytes) const;

 private:
  Limits limits_;
  std::deque<std::string> events_;
  std::size_t bytes_ = 0;
  std::uint64_t newest_ = 0;
};

}  // namespace hvd::driver
