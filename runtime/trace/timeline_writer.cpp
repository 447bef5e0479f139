#include "runtime/trace/timeline_writer.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "runtime/trace/timeline_file.h"
#include "runtime/trace/timeline_text.h"

namespace hvd::runtime::trace {

class TimelineWriter::Loop {
 public:
  Loop(std::string path, const WorldSpec& spec, bool under_way)
      : path_(std::move(path)),
        text_(spec.members, spec.generation, nanoseconds_now()),
        under_way_(under_way),
        dropped_(spec.members.size()) {}

  void put(Item item);
  // The thread.
  void run();
  // Waits for the file, unless it hangs.
  Status wait_open();
  Status finish();
  // There is no thread.
  void give_up() { is_over_ = true; }

 private:
  void set_urgent(bool really);
  void work();
  void write();
  Status create();
  void fail(const Status& why, const char* what);
  // Waits until `done`, as long as no operation on the file takes longer than kPatience.
  template <typename Done>
  bool wait(std::unique_lock<std::mutex>& lock, Done done);
  template <typename Operation>
  Status on_file(Operation operation);
  Status hang() const;

  const std::string path_;
  TimelineText text_;  // of the thread, as are the next two
  std::optional<TimelineFile> file_;
  bool urgent_ = true;
  const bool under_way_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::size_t waiting_ = 0;  // bytes in items_
  std::vector<std::uint32_t> dropped_;
  TimePoint busy_since_ = kNever;  // with an operation on the file
  bool is_open_ = false;           // or has failed
  bool finishing_ = false;
  bool is_over_ = false;
  Status failed_;
};

void TimelineWriter::Loop::put(Item item) {
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

// If the process may not change the priority, the thread runs at the normal one.
void TimelineWriter::Loop::set_urgent(bool really) {
  if (urgent_ == really) return;
  urgent_ = really;
  const sched_param none{};
  pthread_setschedparam(pthread_self(), really ? SCHED_OTHER : SCHED_IDLE, &none);
}

template <typename Operation>
Status TimelineWriter::Loop::on_file(Operation operation) {
  {
    const std::lock_guard lock(mutex_);
    busy_since_ = Clock::now();
    changed_.notify_all();
  }
  Status done = operation();
  const std::lock_guard lock(mutex_);
  busy_since_ = kNever;
  changed_.notify_all();
  return done;
}

void TimelineWriter::Loop::fail(const Status& why, const char* what) {
  file_.reset();
  if (what != nullptr) HVD_LOG(warning, why.message() << what);
  const std::lock_guard lock(mutex_);
  failed_ = why;
  items_.clear();
  waiting_ = 0;
}

Status TimelineWriter::Loop::create() {
  auto created = TimelineFile::create(path_, text_.take());
  if (created.ok()) file_ = std::move(*created);
  return created.status();
}

void TimelineWriter::Loop::run() {
  ::pthread_setname_np(::pthread_self(), "hvd-timeline");
  const Status opened = on_file([this] { return create(); });
  if (!opened.ok()) {
    fail(opened, under_way_ ? "; there is no timeline of this world, the job goes on" : nullptr);
  }
  set_urgent(false);
  {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  work();
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

void TimelineWriter::Loop::work() {
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

void TimelineWriter::Loop::write() {
  const std::string elements = text_.take();
  // After a failed write nothing more may follow: later events could refer to missing ones.
  if (elements.empty() || !file_) return;
  const Status written = on_file([&] { return file_->append(elements); });
  if (!written.ok()) fail(written, "; the timeline ends here, the job goes on");
}

Status TimelineWriter::Loop::hang() const {
  return {Code::deadline_exceeded,
          cat("write the timeline to ", path_, ": its file system has not answered for ",
              kPatience.count(), " s")};
}

template <typename Done>
bool TimelineWriter::Loop::wait(std::unique_lock<std::mutex>& lock, Done done) {
  while (!done()) {
    const TimePoint busy_since = busy_since_;
    if (busy_since == kNever) {
      changed_.wait(lock);
    } else if (Clock::now() >= busy_since + kPatience) {
      return false;
    } else {
      changed_.wait_until(lock, busy_since + kPatience);
    }
  }
  return true;
}

Status TimelineWriter::Loop::wait_open() {
  std::unique_lock lock(mutex_);
  return wait(lock, [this] { return is_open_; }) ? failed_ : hang();
}

Status TimelineWriter::Loop::finish() {
  std::unique_lock lock(mutex_);
  const bool is_first = !std::exchange(finishing_, true);
  changed_.notify_all();
  if (wait(lock, [this] { return is_over_; })) return failed_;
  if (is_first) HVD_LOG(warning, hang().message() << "; the timeline is cut off, the job goes on");
  return hang();
}

TimelineWriter::TimelineWriter(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}

Result<std::unique_ptr<TimelineWriter>> TimelineWriter::open(const std::string& path,
                                                             const WorldSpec& spec,
                                                             bool under_way) {
  auto loop = std::make_shared<Loop>(path, spec, under_way);
  std::unique_ptr<TimelineWriter> writer(new TimelineWriter(loop));
  const Status started = writer->threads_.start([loop] { loop->run(); });
  if (!started.ok()) {
    loop->give_up();
    return started.with_context(cat("write the timeline to ", path));
  }
  if (!under_way) HVD_RETURN_IF_ERROR(loop->wait_open());
  return writer;
}

void TimelineWriter::add(Events events) {
  Item item;
  item.events = std::move(events);
  loop_->put(std::move(item));
}

void TimelineWriter::mark_cycle(Nanoseconds when, std::uint64_t number) {
  Item item;
  item.cycle = when;
  item.number = number;
  loop_->put(std::move(item));
}

Status TimelineWriter::finish() {
  Status done = loop_->finish();
  threads_.join_until(done.code() == Code::deadline_exceeded ? Clock::now() : kNever);
  return done;
}

}  // namespace hvd::runtime::trace
