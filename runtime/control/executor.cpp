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
  thread_ = start_thread("hvd-executor", [this] { loop(); });
}

int Executor::submit(std::vector<Response> responses, bool is_helped) {
  if (responses.empty()) return 0;
  if (hooks_.recorder != nullptr) {
    const auto now = trace::nanoseconds_now();
    for (auto& response : responses) response.decided = now;
    hooks_.recorder->submitted(responses.size());
  }
  int more = 0;
  bool all_little = is_helped;
  const std::lock_guard lock(mutex_);
  for (auto& response : responses) {
    if (response.error.ok()) ++more;
    all_little = all_little && is_little(response);
    responses_.push_back(std::move(response));
  }
  under_way_ += more;
  if (!all_little) arrived_.notify_one();
  return more;
}

// Whether a thread that waits may run it: it is not kept from its own business for long, and calls
// nothing of the program that could wait for it.
bool Executor::is_little(const Response& response) const {
  const Kind kind = response.kind;
  if (kind != Kind::allreduce && kind != Kind::broadcast && kind != Kind::barrier) return false;
  std::size_t bytes = 0;
  for (const auto& tensor : response.tensors) {
    if (!tensor->request.on_host) return false;
    bytes += tensor->request.bytes();
    if (bytes > kLittle) return false;
  }
  return queue_.all_plain(response.tensors);
}

bool Executor::can_run_here() const {
  return !busy_ && on_devices_ == 0 && !responses_.empty() && is_little(responses_.front());
}

bool Executor::has_little() {
  const std::lock_guard lock(mutex_);
  return can_run_here();
}

void Executor::run_here() {
  std::unique_lock lock(mutex_);
  if (!can_run_here()) return;
  take_and_serve(lock, true);
  if (!responses_.empty() && !can_run_here()) arrived_.notify_one();
}

void Executor::post(std::function<void()> errand) {
  const std::lock_guard lock(mutex_);
  errands_.push_back(std::move(errand));
  arrived_.notify_one();
}

void Executor::hand_over() {
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
  landed_.wait(lock, [this] { return on_devices_ == 0; });
}

void Executor::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [this] {
      return !errands_.empty() || (!busy_ && (stopping_ || !responses_.empty()));
    });
    if (!errands_.empty()) {
      const auto errand = std::move(errands_.front());
      errands_.pop_front();
      lock.unlock();
      errand();
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
  batch.is_here = here;
  const Response& response = batch.response;
  batch.set_size = set_size(response);
  queue_.take(response.tensors, response.decided, begun, batch.slots);
  for (auto* const slot : batch.slots) batch.entries.add(slot->entry);
  batch.made_up = response.error.ok() &&
                  std::binary_search(response.joined.begin(), response.joined.end(), rank_);
  if (batch.made_up) {
    batch.phantoms.resize(response.tensors.size());
    for (std::size_t i = 0; i < batch.phantoms.size(); ++i) {
      batch.phantoms[i].request = response.tensors[i]->request;
      batch.entries.add(batch.phantoms[i]);
    }
  }
  batch.outcomes.resize(batch.entries.size());
  for (auto& outcome : batch.outcomes) outcome.clear();
  batch.traced.emplace(hooks_.recorder, begun);
  const Failure failure = run();
  if (batch_->goes_on) {
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
    if (!batch.is_here) hooks_.on_done();
  }
  // Whoever hears of the end finds it in the records.
  batch.traced->finish(batch.response, batch.set_size, batch.entries, batch.outcomes);
  if (!batch.made_up) deliver(batch);
}

// The names are free before the callbacks run: a caller that wakes up may use them again, and what
// was an entry may then be the next one.
void Executor::deliver(Batch& batch) {
  // A callback of the program may wait for a lock of whoever waits for one before it.
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
    // What it holds goes before the next one is called.
    batch.callbacks[i] = nullptr;
    if (!all_only_wake) hooks_.on_delivered();
  }
  if (!batch.is_here) hooks_.on_delivered();
}

void Executor::Batch::clear() {
  made_up = goes_on = is_here = false;
  slots.clear();
  phantoms.clear();
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
  if (!response.error.ok()) return response.error;
  if (batch_->entries.size() != response.tensors.size()) {
    // The queue gives entries to nobody else, except when a verdict has closed it.
    if (!verdict_.known()) {
      hooks_.on_broken(
          {Code::internal, cat("the coordinator wants to run ", kind_name(response.kind), " \"",
                               response.request().name, "\", which this rank never asked for")});
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
      remove_set(response.process_set);
      return {};
    default:
      return operate();
  }
}

Failure Executor::await_verdict() {
  HelpingThread::about_to_sleep();
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
    if (!operation->gives_notice()) HelpingThread::about_to_sleep();
    const Status status = operation->goes_on()
                              ? begin(*operation, group)
                              : operation->execute(response, group, batch.entries, batch.outcomes);
    return status.ok() ? Failure() : broken(status);
  }
  // All ranks have the same operations, so none of them begins it.
  return Status(Code::invalid_argument,
                cat(kind_name(response.kind), " \"", response.request().name,
                    "\": no operation of this build works on the memory of ",
                    response.request().on_host ? "the host" : "a GPU"));
}

// It is delivered where it ends; that may be here, too, before the operation returns.
Status Executor::begin(Operation& operation, const Group& group) {
  const auto batch = batch_;
  const auto land = [this] {
    const std::lock_guard lock(mutex_);
    --on_devices_;
    landed_.notify_all();
  };
  const auto over = [this, batch, land](const Status& status) {
    // After an error only the verdict counts, which is the reason for it or soon there.
    end(*batch, status.ok() ? Failure() : broken(status));
    land();
  };
  {
    const std::lock_guard lock(mutex_);
    ++on_devices_;
  }
  batch->goes_on = true;
  batch->traced->leave_thread();
  Status begun = operation.begin(batch->response, group, batch->entries, batch->outcomes, over);
  if (begun.ok()) return {};
  batch->goes_on = false;
  land();
  return begun;
}

void Executor::enter(int id, const RankSet& members) {
  if (!members.contains(static_cast<RankSet::Value>(rank_))) return;
  groups_.emplace(id, Group{id, members.ranks(), position_in(members, rank_)});
}

void Executor::add_set(const Response& response) {
  const auto members = RankSet::of_ranks(response.request().ranks);
  queue_.open_set(members);
  enter(response.new_set, members);
  batch_->outcomes.front().process_set = response.new_set;
}

// What is in flight in it can never be run: the others may not have asked for it yet.
void Executor::remove_set(int process_set) {
  groups_.erase(process_set);
  for (auto& operation : operations_) operation->forget(process_set);
  batch_->outcomes.front().process_set = process_set;
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
