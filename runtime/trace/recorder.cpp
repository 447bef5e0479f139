#include "runtime/trace/recorder.h"

#include "runtime/trace/batch.h"

namespace hvd::runtime::trace {

Run::Run(Recorder* recorder, const Response& response, int set_size, std::span<const Entry> entries)
    : recorder_(recorder), response_(response), set_size_(set_size) {
  if (recorder_ == nullptr) return;
  begun_ = nanoseconds_now();
  for (const auto& entry : entries) {
    if (entry.record == nullptr) continue;
    entry.record->decided.store(response.decided, std::memory_order_relaxed);
    entry.record->begun.store(begun_, std::memory_order_relaxed);
  }
  if (recorder_->recording()) steps_of_this_thread = &steps_;
}

void Run::stop() {
  steps_of_this_thread = nullptr;
  if (recorder_ != nullptr) ended_ = nanoseconds_now();
}

void Run::finish(std::span<const Entry> entries, std::span<const Outcome> outcomes) {
  if (recorder_ != nullptr) recorder_->keep(*this, entries, outcomes);
}

void Recorder::begin(std::span<Entry> entries) {
  const auto now = nanoseconds_now();
  const std::lock_guard lock(mutex_);
  for (auto& entry : entries) {
    // The oldest that has ended lends its memory.
    if (ended_.size() >= kKept) {
      open_.splice(open_.end(), ended_, ended_.begin());
    } else {
      open_.emplace_back();
      open_.back().self = std::prev(open_.end());
    }
    Operation& operation = open_.back();
    const Request& request = entry.request;
    operation.name = request.name;
    operation.kind = request.kind;
    operation.type = request.type;
    operation.process_set = request.process_set;
    operation.shape = request.shape;
    operation.bytes = request.bytes();
    operation.enqueued = now;
    operation.asked.store(0, std::memory_order_relaxed);
    operation.decided.store(0, std::memory_order_relaxed);
    operation.begun.store(0, std::memory_order_relaxed);
    operation.ended = 0;
    operation.batch = 0;
    operation.batch_size = 0;
    if (!operation.error.ok()) operation.error = {};
    entry.record = &operation;
  }
}

void Recorder::forget(std::span<Entry> entries) {
  const std::lock_guard lock(mutex_);
  for (auto& entry : entries) {
    open_.erase(entry.record->self);
    entry.record = nullptr;
  }
}

// They stand in the order in which they began.
void Recorder::asked() {
  const auto now = nanoseconds_now();
  const std::lock_guard lock(mutex_);
  for (auto operation = open_.rbegin(); operation != open_.rend(); ++operation) {
    if (operation->asked.load(std::memory_order_relaxed) != 0) return;
    operation->asked.store(now, std::memory_order_relaxed);
  }
}

void Recorder::end(Operation& operation, Nanoseconds now, const Status& error) {
  operation.ended = now;
  if (!error.ok()) operation.error = error;
  ended_.splice(ended_.end(), open_, operation.self);
  // Many were in flight at once.
  if (ended_.size() > kKept) ended_.pop_front();
}

void Recorder::keep(const Run& run, std::span<const Entry> entries,
                    std::span<const Outcome> outcomes) {
  const Response& response = run.response_;
  if (wanted(response.number)) {
    Batch batch;
    batch.number = response.number;
    batch.process_set = response.process_set;
    batch.set_size = run.set_size_;
    batch.decided = response.decided;
    batch.begun = run.begun_;
    batch.ended = run.ended_;
    batch.operation = run.operation_;
    batch.steps = run.steps_;
    std::string bytes;
    bytes.reserve(256 + entries.size() * 96);
    append_batch(bytes, batch, entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto* const record = entries[i].record;
      const Request& request = entries[i].request;
      const Status& why = outcomes[i].failure.status;
      // Of a rank that has joined there is no record: it asked for nothing.
      append_tensor(bytes, request.name, request.kind, request.type, request.shape,
                    record != nullptr ? record->enqueued : 0,
                    record != nullptr ? record->asked.load(std::memory_order_relaxed) : 0,
                    why.message());
    }
    append(bytes, entries.size());
  }
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      auto* const record = entries[i].record;
      if (record == nullptr) continue;
      record->batch = response.number;
      record->batch_size = static_cast<std::uint32_t>(entries.size());
      end(*record, run.ended_, outcomes[i].failure.status);
    }
  }
  served_ = response.number;
  if (until_ != kForever && idle()) on_pending_();
}

void Recorder::fail(std::span<const Entry> entries, const Status& why) {
  const auto now = nanoseconds_now();
  std::string bytes;
  for (const auto& entry : entries) {
    if (entry.record == nullptr || !recording()) continue;
    const Request& request = entry.request;
    Batch batch;
    batch.process_set = request.process_set;
    batch.ended = now;
    bytes.clear();
    append_batch(bytes, batch, 1);
    append_tensor(bytes, request.name, request.kind, request.type, request.shape,
                  entry.record->enqueued, entry.record->asked, why.message());
    append(bytes, 1);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries) {
    if (entry.record != nullptr) end(*entry.record, now, why);
  }
}

void Recorder::append(std::string_view batch, std::size_t tensors) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = append_locked(batch, tensors);
  }
  if (first) on_pending_();
}

bool Recorder::append_locked(std::string_view batch, std::size_t tensors) {
  const bool first = pending_.chunks.empty() && pending_.dropped == 0;
  if (pending_bytes_ + batch.size() > kMaxPending) {
    pending_.dropped += static_cast<std::uint32_t>(tensors);
    return first;
  }
  if (pending_.chunks.empty() || pending_.chunks.back().batches.size() + batch.size() > kChunk) {
    pending_.chunks.emplace_back();
  }
  Chunk& chunk = pending_.chunks.back();
  chunk.batches += batch;
  chunk.tensors += static_cast<std::uint32_t>(tensors);
  pending_bytes_ += batch.size();
  return first;
}

void Recorder::start(std::uint64_t after) {
  after_ = after;
  until_ = kForever;
  recording_ = true;
}

void Recorder::stop() {
  recording_ = false;
  until_ = kForever;
  const std::lock_guard lock(mutex_);
  pending_ = {};
  pending_bytes_ = 0;
}

Recorder::Pending Recorder::fetch() {
  const std::lock_guard lock(mutex_);
  pending_bytes_ = 0;
  return std::exchange(pending_, {});
}

bool Recorder::has_pending() const {
  const std::lock_guard lock(mutex_);
  return !pending_.chunks.empty() || pending_.dropped > 0;
}

void Recorder::flush_open() {
  const auto now = nanoseconds_now();
  std::string bytes;
  const std::lock_guard lock(mutex_);
  for (const auto& operation : open_) {
    Batch batch;
    batch.process_set = operation.process_set;
    batch.unfinished = true;
    batch.decided = operation.decided;
    batch.begun = operation.begun;
    batch.ended = now;
    bytes.clear();
    append_batch(bytes, batch, 1);
    append_tensor(bytes, operation.name, operation.kind, operation.type, operation.shape,
                  operation.enqueued, operation.asked, {});
    append_locked(bytes, 1);
  }
}

std::vector<Recorder::View> Recorder::operations() const {
  std::vector<View> views;
  const std::lock_guard lock(mutex_);
  views.reserve(ended_.size() + open_.size());
  for (const auto* const list : {&ended_, &open_}) {
    for (const auto& o : *list) {
      views.push_back({o.name, o.kind, o.type, o.process_set, o.bytes, o.enqueued, o.asked,
                       o.decided, o.begun, o.ended, o.batch, o.batch_size, o.error});
    }
  }
  return views;
}

}  // namespace hvd::runtime::trace
