#include "runtime/executor.h"

#include <algorithm>

#include "base/text.h"
#include "runtime/threads.h"

namespace hvd::runtime {

void Executor::start(std::vector<std::unique_ptr<Operation>> operations, const ProcessSets& sets,
                     int rank) {
  rank_ = rank;
  for (const auto& [id, members] : sets.all()) enter(id, members);
  operations_ = std::move(operations);
  thread_ = start_thread("hvd-executor", [this] { loop(); });
}

void Executor::submit(std::vector<Response> responses) {
  if (responses.empty()) return;
  if (hooks_.recorder != nullptr) {
    const auto now = trace::nanoseconds_now();
    for (auto& response : responses) response.decided = now;
    hooks_.recorder->submitted(responses.back().number);
  }
  const std::lock_guard lock(mutex_);
  for (auto& response : responses) {
    if (response.error.ok()) ++under_way_;
    responses_.push_back(std::move(response));
  }
  arrived_.notify_one();
}

void Executor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    arrived_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Executor::loop() {
  for (;;) {
    Response response;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return stopping_ || !responses_.empty(); });
      if (responses_.empty()) return;
      response = std::move(responses_.front());
      responses_.pop_front();
    }
    serve(response);
  }
}

void Executor::serve(Response& response) {
  const auto begun = trace::nanoseconds_now();
  batch_.clear();
  queue_.take(response.tensors, response.decided, begun, batch_.slots);
  for (auto* const slot : batch_.slots) batch_.entries.add(slot->entry);
  const bool made_up = response.error.ok() &&
                       std::binary_search(response.joined.begin(), response.joined.end(), rank_);
  if (made_up) {
    batch_.phantoms.resize(response.tensors.size());
    for (std::size_t i = 0; i < batch_.phantoms.size(); ++i) {
      batch_.phantoms[i].request = response.tensors[i]->request;
      batch_.entries.add(batch_.phantoms[i]);
    }
  }
  batch_.outcomes.resize(batch_.entries.size());
  for (auto& outcome : batch_.outcomes) outcome.clear();
  trace::Run traced(hooks_.recorder, begun);
  const Failure failure = run(response, traced);
  traced.stop();
  if (!failure.ok()) batch_.outcomes.assign(batch_.entries.size(), Outcome(failure));
  if (response.error.ok()) {
    --under_way_;
    hooks_.on_done();
  }
  // Whoever hears of the end finds it in the records.
  traced.finish(response, set_size(response), batch_.entries, batch_.outcomes);
  if (!made_up) deliver();
}

// The names are free before the callbacks run: a caller that wakes up may use them again, and what
// was an entry may then be the next one.
void Executor::deliver() {
  for (auto& entry : batch_.entries) {
    batch_.callbacks.push_back(std::move(entry.done));
    entry.done = nullptr;
    if (entry.allocate) entry.allocate = nullptr;
    entry.ready.reset();
  }
  queue_.finish(batch_.slots);
  for (std::size_t i = 0; i < batch_.callbacks.size(); ++i) {
    batch_.callbacks[i](batch_.outcomes[i]);
    // What it holds goes before the next one is called.
    batch_.callbacks[i] = nullptr;
  }
}

void Executor::Batch::clear() {
  slots.clear();
  phantoms.clear();
  entries.clear();
  callbacks.clear();
}

int Executor::set_size(const Response& response) const {
  const auto group = groups_.find(negotiated_in(response.request()));
  return group == groups_.end() ? 0 : group->second.size();
}

Failure Executor::run(const Response& response, trace::Run& traced) {
  if (verdict_.known()) return verdict_.get();
  if (!response.error.ok()) return response.error;
  if (batch_.entries.size() != response.tensors.size()) {
    // The queue gives entries to nobody else, except when a verdict has closed it.
    if (!verdict_.known()) {
      hooks_.on_broken(
          {Code::internal, cat("the coordinator wants to run ", kind_name(response.kind), " \"",
                               response.request().name, "\", which this rank never asked for")});
    }
    return verdict_.wait();
  }
  switch (response.kind) {
    case Kind::join:
      batch_.outcomes.front().last_joined = response.last_joined;
      return {};
    case Kind::add_process_set:
      add_set(response);
      return {};
    case Kind::remove_process_set:
      remove_set(response.process_set);
      return {};
    default:
      break;
  }
  Failure failure = operate(response, traced);
  if (failure.ok()) {
    const auto joined = static_cast<int>(response.joined.size());
    const int ranks = groups_.at(response.process_set).size() - joined;
    for (auto& outcome : batch_.outcomes) outcome.contributors = ranks;
  }
  return failure;
}

Failure Executor::broken(const Status& why) {
  hooks_.on_broken(why);
  return verdict_.wait();
}

Failure Executor::operate(const Response& response, trace::Run& traced) {
  const auto group = groups_.find(response.process_set);
  if (group == groups_.end()) {
    return broken({Code::internal, cat("this rank is not in process set ", response.process_set)});
  }
  for (auto& operation : operations_) {
    if (operation->enabled(response, group->second)) {
      traced.by(operation->name());
      const Status status =
          operation->execute(response, group->second, batch_.entries, batch_.outcomes);
      return status.ok() ? Failure() : broken(status);
    }
  }
  // All ranks have the same operations, so none of them begins it.
  return Status(Code::invalid_argument,
                cat(kind_name(response.kind), " \"", response.request().name,
                    "\": no operation of this build works on the memory of ",
                    response.request().on_host ? "the host" : "a GPU"));
}

void Executor::enter(int id, const RankSet& members) {
  if (!members.contains(static_cast<RankSet::Value>(rank_))) return;
  groups_.emplace(id, Group{id, members.ranks(), position_in(members, rank_)});
}

void Executor::add_set(const Response& response) {
  const auto members = RankSet::of_ranks(response.request().ranks);
  queue_.open_set(members);
  enter(response.new_set, members);
  batch_.outcomes.front().process_set = response.new_set;
}

// What is in flight in it can never be run: the others may not have asked for it yet.
void Executor::remove_set(int process_set) {
  groups_.erase(process_set);
  for (auto& operation : operations_) operation->forget(process_set);
  batch_.outcomes.front().process_set = process_set;
  const std::size_t before = batch_.slots.size();
  queue_.close_set(process_set, batch_.slots);
  for (std::size_t i = before; i < batch_.slots.size(); ++i) {
    Entry& stranded = batch_.slots[i]->entry;
    batch_.entries.add(stranded);
    batch_.outcomes.emplace_back(
        Status(Code::not_found,
               cat(kind_name(stranded.request.kind), " \"", stranded.request.name,
                   "\": process set ", process_set, " was removed while it was in flight")));
  }
}

}  // namespace hvd::runtime
