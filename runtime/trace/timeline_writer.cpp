#include "runtime/trace/timeline_writer.h"

#include <pthread.h>
#include <sched.h>

#include "base/log.h"
#include "runtime/core/threads.h"

namespace hvd::runtime::trace {
Result<std::unique_ptr<TimelineWriter>> TimelineWriter::open(const std::string& path,
                                                             const WorldSpec& spec) {
  TimelineText text(spec.members, spec.generation, nanoseconds_now());
  auto file = TimelineFile::create(path, text.take());
  HVD_RETURN_IF_ERROR(file.status());
  std::unique_ptr<TimelineWriter> writer(new TimelineWriter(std::move(*file), std::move(text)));
  writer->dropped_.resize(spec.members.size());
  writer->thread_ = start_thread("hvd-timeline", [self = writer.get()] { self->loop(); });
  return writer;
}

void TimelineWriter::put(Item item) {
  const std::lock_guard lock(mutex_);
  if (finishing_ || !failed_.ok()) return;
  if (waiting_ + item.events.batches.size() > kMaxWaiting) {
    dropped_[static_cast<std::size_t>(item.events.rank)] +=
        item.events.tensors + item.events.dropped;
    return;
  }
  item.events.dropped += std::exchange(dropped_[static_cast<std::size_t>(item.events.rank)], 0);
  waiting_ += item.events.batches.size();
  items_.push_back(std::move(item));
  if (items_.size() == 1) changed_.notify_all();
}

void TimelineWriter::add(Events events) {
  Item item;
  item.events = std::move(events);
  put(std::move(item));
}

void TimelineWriter::mark_cycle(Nanoseconds when, std::uint64_t number) {
  Item item;
  item.cycle = when;
  item.number = number;
  put(std::move(item));
}

// If the process may not change the priority, the thread runs at the normal one.
void TimelineWriter::set_urgent(bool really) {
  if (urgent_ == really) return;
  urgent_ = really;
  const sched_param none{};
  pthread_setschedparam(pthread_self(), really ? SCHED_OTHER : SCHED_IDLE, &none);
}

void TimelineWriter::loop() {
  set_urgent(false);
  TimePoint release_at = kNever;
  for (;;) {
    std::deque<Item> items;
    bool finishing = false;
    {
      std::unique_lock lock(mutex_);
      const auto wanted = [this] { return finishing_ || !items_.empty(); };
      if (release_at == kNever) {
        changed_.wait(lock, wanted);
      } else {
        changed_.wait_until(lock, release_at, wanted);
      }
      // A few at a time: each write is short, and the rest still counts as waiting.
      while (!items_.empty() && items.size() < 4) {
        items.push_back(std::move(items_.front()));
        waiting_ -= items.back().events.batches.size();
        items_.pop_front();
      }
      finishing = finishing_ && items_.empty();
      set_urgent(finishing_ || waiting_ > kMaxWaiting / 2);
    }

    const auto now = Clock::now();
    for (const Item& item : items) {
      if (item.cycle != 0) {
        text_.mark_cycle(item.cycle, item.number);
      } else {
        text_.add(item.events, now);
      }
    }

    release_at = text_.release(now, finishing);
    write();
    if (finishing) return;
  }
}

void TimelineWriter::write() {
  const std::string elements = text_.take();
  // After a failed write nothing more may follow: later events could refer to missing ones.
  if (elements.empty() || is_broken_) return;
  const Status written = file_.append(elements);
  if (written.ok()) return;
  is_broken_ = true;
  HVD_LOG(warning, written.message() << "; the timeline ends here, the job goes on");
  const std::lock_guard lock(mutex_);
  failed_ = written;
  items_.clear();
  waiting_ = 0;
}

Status TimelineWriter::finish() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  return failed_;
}

}  // namespace hvd::runtime::trace
