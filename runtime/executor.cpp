#include "runtime/executor.h"

#include "base/text.h"
#include "runtime/threads.h"

namespace hvd::runtime {

void Executor::start(std::vector<std::unique_ptr<Operation>> operations, Group world) {
  world_ = std::move(world);
  operations_ = std::move(operations);
  thread_ = start_thread("hvd-executor", [this] { loop(); });
}

void Executor::submit(std::vector<Response> responses) {
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
    auto entries = queue_.take(response.tensors);
    std::vector<Outcome> outcomes(entries.size());
    const Failure failure = run(response, entries, outcomes);
    if (!failure.ok()) outcomes.assign(entries.size(), Outcome(failure));
    if (response.error.ok()) {
      --under_way_;
      hooks_.on_done();
    }
    // The names are free before the callbacks run: a caller that wakes up may use them again.
    queue_.finish(entries);
    for (std::size_t i = 0; i < entries.size(); ++i) entries[i].done(outcomes[i]);
  }
}

Failure Executor::run(const Response& response, std::vector<Entry>& entries,
                      std::vector<Outcome>& outcomes) {
  if (verdict_.known()) return verdict_.get();
  if (!response.error.ok()) return response.error;
  Status status(Code::internal, cat("no operation can run ", kind_name(response.kind)));
  if (entries.size() != response.tensors.size()) {
    // The queue gives entries to nobody else, except when a verdict has closed it.
    if (!verdict_.known()) {
      hooks_.on_broken(
          {Code::internal, cat("the coordinator wants to run ", kind_name(response.kind), " \"",
                               response.tensors.front().request.name,
                               "\", which this rank never asked for")});
    }
    return verdict_.wait();
  }
  for (auto& operation : operations_) {
    if (!operation->enabled(response, world_)) continue;
    status = operation->execute(response, world_, entries, outcomes);
    break;
  }
  if (status.ok()) return {};
  hooks_.on_broken(status);
  return verdict_.wait();
}

}  // namespace hvd::runtime
