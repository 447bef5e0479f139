#include "runtime/trace/recorder.h"

#include <unordered_set>

#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime::trace {

TracedBatch::TracedBatch(Recorder* recorder, Nanoseconds begun)
    : recorder_(recorder), begun_(begun) {
  if (recorder_ != nullptr && recorder_->recording()) current_steps = &steps_;
}

void TracedBatch::leave_thread() {
  if (current_steps == &steps_) current_steps = nullptr;
}

void TracedBatch::stop() {
  leave_thread();
  if (recorder_ != nullptr) ended_ = nanoseconds_now();
}

void TracedBatch::finish(Response& response, int set_size, const Entries& entries,
                         std::span<const Outcome> outcomes) {
  if (recorder_ != nullptr) recorder_->keep(*this, response, set_size, entries, outcomes);
}

void Recorder::keep(const TracedBatch& run, Response& response, int set_size,
                    const Entries& entries, std::span<const Outcome> outcomes) {
  Ended ended;
  ended.number = response.number;
  ended.when = run.ended_;

  const bool ragged = !response.tensors.empty() && is_ragged(response.request());
  // Usually the entries are exactly the response's tensors.
  if (entries.size() == response.tensors.size()) ended.tensors = std::move(response.tensors);
  ended.times.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Status& why = outcomes[i].failure.status;
    if (!why.ok() && ended.errors.empty()) ended.errors.resize(entries.size());
    if (!why.ok()) ended.errors[i] = why;
    // Placeholders of a rank that has joined were never enqueued.
    if (entries[i].times.enqueued == 0) continue;
    if (ended.tensors.size() == ended.times.size()) {
      ended.tensors.push_back(
          std::make_shared<ResponseTensor>(ResponseTensor{entries[i].request, {}}));
    }
    ended.times.push_back(entries[i].times);
    if (ragged) ended.own_bytes.push_back(entries[i].request.bytes());
  }

  if (wanted(response.number)) {
    Batch batch;
    batch.number = response.number;
    batch.process_set = response.process_set;
    batch.set_size = set_size;
    batch.decided = response.decided;
    batch.begun = run.begun_;
    batch.ended = run.ended_;
    batch.operation = run.operation_;
    batch.steps = run.steps_;

    // From the times gathered above: reading all entries once more would cost more than the
    // encoding.
    const bool joined = ended.times.empty();
    const bool first = append(batch, entries.size(), [&] {
      for (std::size_t i = 0; i < entries.size(); ++i) {
        const EntryTimes times = joined ? EntryTimes() : ended.times[i];
        const auto error = ended.errors.empty() ? std::string_view() : ended.errors[i].message();
        writer_.add(entries[i].request, ended.tensors[i]->cache_id, times.enqueued, times.asked,
                    error);
      }
    });
    if (first) on_pending_();
  }

  remember(std::move(ended));
  ++served_;
  if (until_ != kForever && idle()) on_pending_();
}

void Recorder::remember(Ended ended) {
  if (ended.times.empty()) return;
  const std::lock_guard lock(mutex_);
  ended_count_ += ended.times.size();
  ended_.push_back(std::move(ended));
  while (ended_count_ - ended_.front().times.size() >= kKept) {
    ended_count_ -= ended_.front().times.size();
    ended_.pop_front();
  }
}

void Recorder::fail(std::span<const Entry> entries, const Status& why) {
  const auto now = nanoseconds_now();
  Ended ended;
  ended.when = now;
  for (const auto& entry : entries) {
    const Request& request = entry.request;
    ended.tensors.push_back(std::make_shared<ResponseTensor>(ResponseTensor{request, {}}));
    ended.times.push_back(entry.times);
    ended.errors.push_back(why);
    if (!recording()) continue;
    Batch batch;
    batch.process_set = request.process_set;
    batch.ended = now;
    append_alone(batch, request, entry.times, why.message());
  }
  remember(std::move(ended));
}

// The queue may still list entries that have just ended.
std::vector<Entry> Recorder::in_flight_entries() const {
  std::vector<Entry> entries;
  in_flight_([&](const Entry& entry) {
    Entry copy;
    copy.request = entry.request;
    copy.times = entry.times;
    entries.push_back(std::move(copy));
  });

  const std::lock_guard lock(mutex_);
  std::unordered_set<std::uint64_t> ended;
  for (const auto& batch : ended_) {
    for (const auto& times : batch.times) ended.insert(times.order);
  }
  std::erase_if(entries, [&](const Entry& entry) { return ended.contains(entry.times.order); });
  return entries;
}

template <typename Write>
bool Recorder::append(const Batch& batch, std::size_t tensors, Write write) {
  const std::lock_guard lock(mutex_);
  const bool first = pending_.chunks.empty() && pending_.dropped == 0 && writer_.tensors() == 0;
  if (pending_bytes_ + writer_.size() > kMaxPending) {
    pending_.dropped += static_cast<std::uint32_t>(tensors);
    return first;
  }
  writer_.begin(batch, tensors);
  write();
  if (writer_.size_of_batches() > kChunk) end_chunk();
  return first;
}

void Recorder::append_alone(const Batch& batch, const Request& request, const EntryTimes& times,
                            std::string_view error) {
  const bool first = append(batch, 1, [&] {
    writer_.add(request, ResponseTensor::kNotCached, times.enqueued, times.asked, error);
  });
  if (first) on_pending_();
}

void Recorder::end_chunk() {
  if (writer_.tensors() == 0) return;
  pending_bytes_ += writer_.size();
  const auto tensors = writer_.tensors();
  pending_.chunks.push_back({writer_.take(), tensors});
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
  writer_ = {};
  pending_ = {};
  pending_bytes_ = 0;
}

Recorder::Pending Recorder::fetch() {
  const std::lock_guard lock(mutex_);
  end_chunk();
  pending_bytes_ = 0;
  return std::exchange(pending_, {});
}

bool Recorder::has_pending() const {
  const std::lock_guard lock(mutex_);
  return !pending_.chunks.empty() || pending_.dropped > 0 || writer_.tensors() > 0;
}

void Recorder::flush_in_flight() {
  const auto now = nanoseconds_now();
  for (const auto& entry : in_flight_entries()) {
    Batch batch;
    batch.process_set = entry.request.process_set;
    batch.unfinished = true;
    batch.decided = entry.times.decided;
    batch.begun = entry.times.begun;
    batch.ended = now;
    append_alone(batch, entry.request, entry.times, {});
  }
}

std::vector<Recorder::View> Recorder::operations() const {
  const auto view_of = [](const Request& request, const EntryTimes& times) {
    View view;
    view.name = request.name;
    view.kind = request.kind;
    view.type = request.type;
    view.process_set = request.process_set;
    view.bytes = request.bytes();
    view.enqueued = times.enqueued;
    view.asked = times.asked;
    view.decided = times.decided;
    view.begun = times.begun;
    return view;
  };

  const auto entries = in_flight_entries();
  std::vector<View> views;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& batch : ended_) {
      for (std::size_t i = 0; i < batch.times.size(); ++i) {
        View& view = views.emplace_back(view_of(batch.tensors[i]->request, batch.times[i]));
        view.ended = batch.when;
        if (!batch.own_bytes.empty()) view.bytes = batch.own_bytes[i];
        view.batch = batch.number;
        view.batch_size = batch.number == 0 ? 0 : static_cast<std::uint32_t>(batch.times.size());
        if (!batch.errors.empty()) view.error = batch.errors[i];
      }
    }
  }

  if (views.size() > kKept) {
    views.erase(views.begin(), views.end() - static_cast<std::ptrdiff_t>(kKept));
  }

  for (const auto& entry : entries) views.push_back(view_of(entry.request, entry.times));
  return views;
}

}  // namespace hvd::runtime::trace
