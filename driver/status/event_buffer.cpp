#include "driver/status/event_buffer.h"

#include <utility>

#include "base/text.h"

namespace hvd::driver {

void EventBuffer::add(std::string event) {
  bytes_ += event.size();
  ++newest_;
  events_.push_back(std::move(event));
  while (events_.size() > 1 && (events_.size() > limits_.events || bytes_ > limits_.bytes)) {
    bytes_ -= events_.front().size();
    events_.pop_front();
  }
}

EventBuffer::Batch EventBuffer::after(std::uint64_t last, std::size_t most_bytes) const {
  Batch batch;
  // A number that no event has yet is not from this job: such a reader has nothing.
  batch.last = last > newest_ ? 0 : last;
  const std::uint64_t dropped = newest_ - events_.size();
  if (batch.last < dropped) {
    batch.missed = dropped - batch.last;
    batch.last = dropped;
  }

  for (std::size_t at = batch.last - dropped; at < events_.size(); ++at) {
    const std::string& event = events_[at];
    if (!batch.text.empty() && batch.text.size() + event.size() > most_bytes) break;
    batch.text += cat("id: ", ++batch.last, "\ndata: ", event, "\n\n");
  }
  return batch;
}

}  // namespace hvd::driver
