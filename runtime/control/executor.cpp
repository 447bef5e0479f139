#include "runtime/control/executor.h"

#include <algorithm>

#include "base/text.h"
#include "runtime/core/threads.h"

namespace hvd::runtime {
void Executor::start(std::vector<std::unique_ptr<Operation>> operations, const ProcessSets& sets,
                     int rank) {
  rank_ = rank;
  for (const auto& [id, members] : sets.all()) enter(id, members);
  operations_ = std::move(operations);
  thread_ = start_prompt_thread("hvd-executor", [this] { loop(); });
}

int Executor::submit(std::vector<Response> responses, bool caller_executes) {
  if (responses.empty()) return 0;
  if (hooks_.recorder != nullptr) {
    const auto now = trace::nanoseconds_now();
    for (auto& response : responses) response.decided = now;
    hooks_.recorder->submitted(responses.size());
  }

  int more = 0;
  bool all_inline = caller_executes;
  const std::lock_guard lock(mutex_);
  for (auto& response : responses) {
    if (response.error.ok()) ++more;
    all_inline = all_inline && may_run_inline(response);
    responses_.push_back(std::move(response));
  }

  under_way_ += more;
  // While a device works on a batch the caller executes nothing, and nobody wakes it when it may.
  if (!all_inline || device_batches_ > 0) arrived_.notify_one();
  return more;
}

// Whether an application thread that waits may execute it: it does not take long, and calls nothing
// of the program that could wait for that thread.
bool Executor::may_run_inline(const Response& response) const {
  const Kind kind = response.kind;
  if (kind != Kind::allreduce && kind != Kind::broadcast && kind != Kind::barrier) return false;
  std::size_t bytes = 0;
  for (const auto& tensor : response.tensors) {
    if (!tensor->request.on_host) return false;
    bytes += tensor->request.bytes();
    if (bytes > kInlineBytes) return false;
  }
  return queue_.all_plain(response.tensors);
}

bool Executor::can_run_inline() const {
  return !busy_ && device_batches_ == 0 && !responses_.empty() &&
         may_run_inline(responses_.front());
}

bool Executor::has_inline_work() {
  const std::lock_guard lock(mutex_);
  return can_run_inline();
}

void Executor::run_inline() {
  std::unique_lock lock(mutex_);
  if (!can_run_inline()) return;
  take_and_serve(lock, true);
  if (stopping_ || (!responses_.empty() && !can_run_inline())) arrived_.notify_one();
}

void Executor::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  arrived_.notify_one();
}

void Executor::end_inline() {
  const std::lock_guard lock(mutex_);
  if (!responses_.empty()) arrived_.notify_one();
}

void Executor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    arrived_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);
  device_batch_ended_.wait(lock, [this] { return device_batches_ == 0; });
}

void Executor::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(
        lock, [this] { return !tasks_.empty() || (!busy_ && (stopping_ || !responses_.empty())); });
    if (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    } else if (responses_.empty()) {
      return;
    } else {
      take_and_serve(lock, false);
    }
  }
}

void Executor::take_and_serve(std::unique_lock<std::mutex>& lock, bool here) {
  Response response = std::move(responses_.front());
  responses_.pop_front();
  busy_ = true;
  lock.unlock();
  serve(std::move(response), here);
  lock.lock();
  busy_ = false;
}

void Executor::serve(Response arrived, bool here) {
  const auto begun = trace::nanoseconds_now();
  Batch& batch = *batch_;
  batch.clear();
  batch.response = std::move(arrived);
  batch.is_inline = here;

  const Response& response = batch.response;
  batch.set_size = set_size(response);
  queue_.take(response.tensors, response.decided, begun, batch.slots, response.lanes);
  for (auto* const slot : batch.slots) batch.entries.add(slot->entry);

  batch.has_joined = response.error.ok() &&
                     std::binary_search(response.joined.begin(), response.joined.end(), rank_);
  if (batch.has_joined) {
    batch.placeholders.resize(response.tensors.size());
    for (std::size_t i = 0; i < batch.placeholders.size(); ++i) {
      batch.placeholders[i].request = response.tensors[i]->request;
      batch.entries.add(batch.placeholders[i]);
    }
  }

  batch.outcomes.resize(batch.entries.size());
  for (auto& outcome : batch.outcomes) outcome.clear();
  batch.traced.emplace(hooks_.recorder, begun);

  const Failure failure = run();
  if (batch_->is_asynchronous) {
    batch_ = std::make_shared<Batch>();
  } else {
    end(batch, failure);
  }
}

void Executor::end(Batch& batch, const Failure& failure) {
  batch.traced->stop();
  if (!failure.ok()) batch.outcomes.assign(batch.entries.size(), Outcome(failure));
  if (batch.response.error.ok()) {
    --under_way_;
    if (!batch.is_inline) hooks_.on_done();
  }
  // A thread that learns of the end finds it in the records.
  batch.traced->finish(batch.response, batch.set_size, batch.entries, batch.outcomes);
  if (!batch.has_joined) deliver(batch);
}

// The names are free before the callbacks run, because a caller that wakes up may use them again;
// its new entry may then take the place of the one that has just ended.
void Executor::deliver(Batch& batch) {
  // A callback of the program may wait for a lock that is held by a thread which waits for an
  // earlier callback: that thread is notified after each one.
  bool all_only_wake = true;
  for (auto& entry : batch.entries) {
    all_only_wake = all_only_wake && entry.done_wakes_only;
    batch.callbacks.push_back(std::move(entry.done));
    entry.done = nullptr;
    if (entry.allocate) entry.allocate = nullptr;
    entry.ready.reset();
  }

  queue_.finish(batch.slots);
  for (std::size_t i = 0; i < batch.callbacks.size(); ++i) {
    batch.callbacks[i](batch.outcomes[i]);
    // Its captured state is destroyed before the next callback is called.
    batch.callbacks[i] = nullptr;
    if (!all_only_wake) hooks_.on_delivered();
  }

  if (!batch.is_inline) hooks_.on_delivered();
}

bool Executor::serve_lanes() {
  return serve_lanes([this](std::int64_t now, TensorQueue::Slots& slots) {
    return queue_.take_some_from_lanes(now, slots);
  });
}

bool Executor::serve_all_lanes(Duration patience) {
  return serve_lanes([this, patience](std::int64_t now, TensorQueue::Slots& slots) {
    return queue_.take_all_from_lanes(now, patience, slots);
  });
}

template <typename Take>
bool Executor::serve_lanes(const Take& take) {
  std::unique_ptr<Batch> batch(lane_batch_.exchange(nullptr));
  if (!batch) batch = std::make_unique<Batch>();
  batch->clear();
  const auto now = trace::nanoseconds_now();
  const std::size_t left = take(now, batch->slots);
  if (left > 0) hooks_.on_left_lanes();
  const bool some = left > 0 || !batch->slots.empty();
  if (!batch->slots.empty()) end_in_lanes(*batch, now);
  const std::unique_ptr<Batch> other(lane_batch_.exchange(batch.release()));
  return some;
}

// The record is that of a batch without a response, which has no place in the order.
void Executor::end_in_lanes(Batch& batch, std::int64_t begun) {
  Response& response = batch.response;
  response = {};
  batch.outcomes.resize(batch.slots.size());
  trace::TracedBatch traced(hooks_.recorder, begun);
  for (std::size_t i = 0; i < batch.slots.size(); ++i) {
    TensorQueue::Slot& slot = *batch.slots[i];
    slot.lane->add_up(slot.entry);
    batch.entries.add(slot.entry);
    response.tensors.push_back(slot.agreed);
    Outcome& outcome = batch.outcomes[i];
    outcome.clear();
    outcome.output = slot.entry.output;
    outcome.shape = slot.entry.request.shape;
    outcome.contributors = slot.lane->members();
  }

  traced.stop();
  if (hooks_.recorder != nullptr) hooks_.recorder->submitted(1);
  traced.finish(response, 0, batch.entries, batch.outcomes);
  deliver_from_lanes(batch);
}

// A thread of the program may hold locks that callbacks of the program want.
void Executor::deliver_from_lanes(Batch& batch) {
  const bool may_call = !CallerProgressScope::is_active();
  std::vector<bool> is_ours;
  for (auto& entry : batch.entries) {
    is_ours.push_back(may_call || entry.done_wakes_only);
    batch.callbacks.push_back(std::move(entry.done));
    entry.done = nullptr;
  }

  queue_.finish(batch.slots);
  for (std::size_t i = 0; i < batch.callbacks.size(); ++i) {
    if (is_ours[i]) {
      batch.callbacks[i](batch.outcomes[i]);
      batch.callbacks[i] = nullptr;
    } else {
      post([this, done = std::move(batch.callbacks[i]), outcome = batch.outcomes[i]] {
        done(outcome);
        hooks_.on_delivered();
      });
    }
  }
  hooks_.on_delivered();
}

void Executor::Batch::clear() {
  has_joined = is_asynchronous = is_inline = false;
  slots.clear();
  placeholders.clear();
  entries.clear();
  callbacks.clear();
}

int Executor::set_size(const Response& response) const {
  const auto group = groups_.find(negotiated_in(response.request()));
  return group == groups_.end() ? 0 : group->second.size();
}

Failure Executor::run() {
  const Response& response = batch_->response;
  if (verdict_.known()) return verdict_.get();
  if (!response.error.ok()) {
    if (!batch_->slots.empty() && hooks_.on_refused) hooks_.on_refused(response.error);
    return response.error;
  }

  if (batch_->entries.size() != response.tensors.size() && !is_onlooker(response)) {
    // The entries are all there unless a verdict has closed the queue.
    if (!verdict_.known()) {
      hooks_.on_broken(
          {Code::internal, cat("the coordinator wants to run ", kind_name(response.kind), " \"",
                               response.request().name, "\", which this rank never requested")});
    }
    return await_verdict();
  }

  switch (response.kind) {
    case Kind::join:
      batch_->outcomes.front().last_joined = response.last_joined;
      return {};
    case Kind::add_process_set:
      add_set(response);
      return {};
    case Kind::remove_process_set:
      remove_set(response);
      return {};
    default:
      return operate();
  }
}

// A set that its members have added or removed, of which all ranks take note.
bool Executor::is_onlooker(const Response& response) const {
  const Request& request = response.request();
  return request.by_members &&
         !std::binary_search(request.ranks.begin(), request.ranks.end(), rank_);
}

Failure Executor::await_verdict() {
  CallerProgressScope::about_to_sleep();
  return verdict_.wait();
}

Failure Executor::broken(const Status& why) {
  hooks_.on_broken(why);
  return await_verdict();
}

Failure Executor::operate() {
  Batch& batch = *batch_;
  const Response& response = batch.response;
  const auto found = groups_.find(response.process_set);
  if (found == groups_.end()) {
    return broken({Code::internal, cat("this rank is not in process set ", response.process_set)});
  }

  const Group& group = found->second;
  const int ranks = group.size() - static_cast<int>(response.joined.size());
  for (auto& outcome : batch.outcomes) outcome.contributors = ranks;

  for (auto& operation : operations_) {
    if (!operation->enabled(response, group)) continue;
    batch.traced->by(operation->name());
    if (!operation->gives_notice()) CallerProgressScope::about_to_sleep();
    const Status status = operation->goes_on()
                              ? begin(*operation, group)
                              : operation->execute(response, group, batch.entries, batch.outcomes);
    return status.ok() ? Failure() : broken(status);
  }

  // All ranks have the same operations, so no rank begins this one.
  return Status(Code::invalid_argument,
                cat(kind_name(response.kind), " \"", response.request().name,
                    "\": this build has no operation for memory of ",
                    response.request().on_host ? "the host" : "a GPU"));
}

// The batch is delivered by the thread on which it ends; that may be this one, before the operation
// returns.
Status Executor::begin(Operation& operation, const Group& group) {
  const auto batch = batch_;
  const auto device_batch_ended = [this] {
    const std::lock_guard lock(mutex_);
    --device_batches_;
    device_batch_ended_.notify_all();
  };

  const auto over = [this, batch, device_batch_ended](const Status& status) {
    // After an error the verdict counts, which is its cause or will be set soon.
    end(*batch, status.ok() ? Failure() : broken(status));
    device_batch_ended();
  };
  {
    const std::lock_guard lock(mutex_);
    ++device_batches_;
  }

  batch->is_asynchronous = true;
  batch->traced->leave_thread();
  Status begun = operation.begin(batch->response, group, batch->entries, batch->outcomes, over);
  if (begun.ok()) return {};
  batch->is_asynchronous = false;
  device_batch_ended();
  return begun;
}

void Executor::enter(int id, const RankSet& members) {
  if (!members.contains(static_cast<RankSet::Value>(rank_))) return;
  groups_.emplace(id, Group{id, members.ranks(), position_in(members, rank_)});
}

void Executor::note_set(int id, const Request& request) {
  for (auto& outcome : batch_->outcomes) outcome.process_set = id;
  const bool is_new = request.kind == Kind::add_process_set;
  if (hooks_.on_set) hooks_.on_set(id, is_new ? &request.ranks : nullptr, request.by_members);
}

void Executor::add_set(const Response& response) {
  const Request& request = response.request();
  const auto members = RankSet::of_ranks(request.ranks);
  queue_.open_set(members, request.by_members);
  enter(response.new_set, members);
  note_set(response.new_set, request);
}

// Entries in flight in this set cannot complete: other ranks may not have made the same call yet.
void Executor::remove_set(const Response& response) {
  const int process_set = response.process_set;
  groups_.erase(process_set);
  for (auto& operation : operations_) operation->forget(process_set);
  note_set(process_set, response.request());
  const std::size_t before = batch_->slots.size();
  queue_.close_set(process_set, batch_->slots);
  for (std::size_t i = before; i < batch_->slots.size(); ++i) {
    Entry& stranded = batch_->slots[i]->entry;
    batch_->entries.add(stranded);
    batch_->outcomes.emplace_back(
        Status(Code::not_found,
               cat(kind_name(stranded.request.kind), " \"", stranded.request.name,
                   "\": process set ", process_set, " was removed while it was in flight")));
  }
}

}  // namespace hvd::runtime
