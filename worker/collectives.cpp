#include <condition_variable>
#include <mutex>

#include <hvd/collectives.h>
#include <hvd/error.h>

#include "base/text.h"
#include "worker/process_world.h"
#include "worker/throw_failure.h"

namespace hvd {

// One collective in flight, from the call to its outcome.
class detail::Pending {
 public:
  void finish(const runtime::Outcome& outcome) {
    const std::lock_guard lock(mutex_);
    outcome_ = outcome;
    done_ = true;
    finished_.notify_all();
  }
  bool ready() const {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  const runtime::Outcome& wait() const {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
    return outcome_;  // never changes again
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool done_ = false;
  runtime::Outcome outcome_;
};

namespace {

void check(const runtime::Failure& outcome) {
  if (outcome.ok()) return;
  if (outcome.world_failed) worker::ProcessWorld::instance().await_stop_of_job();
  worker::throw_failure(outcome);
}

}  // namespace

Handle::Handle(std::shared_ptr<detail::Pending> pending) : pending_(std::move(pending)) {}
bool Handle::ready() const { return !pending_ || pending_->ready(); }
void Handle::wait() const {
  if (pending_) check(pending_->wait().failure);
}

namespace {

using runtime::Kind;

void check_memory(const TensorView& tensor, const std::string& name) {
  if (tensor.data == nullptr && tensor.elements() != 0) {
    throw InvalidArgumentError(cat("\"", name, "\": the tensor has ", tensor.elements(),
                                   " elements, but no memory (data is null)"));
  }
}

Handle enqueue(runtime::Request request, const TensorView& input, const TensorView& output) {
  auto& process = worker::ProcessWorld::instance();
  const auto world = process.world();
  if (!world) {
    throw NotInitializedError(
        cat("hvd::", runtime::kind_name(request.kind), "() needs hvd::init() before it"));
  }
  if (request.name.empty()) request.name = process.next_name(request.kind);
  check_memory(input, request.name);
  check_memory(output, request.name);
  if (input.type != output.type || input.shape != output.shape) {
    throw InvalidArgumentError(cat("\"", request.name, "\": the input is ",
                                   runtime::type_name(input.type), runtime::shape_text(input.shape),
                                   ", the output ", runtime::type_name(output.type),
                                   runtime::shape_text(output.shape), "; they must be alike"));
  }
  request.type = input.type;
  request.shape = input.shape;
  auto pending = std::make_shared<detail::Pending>();
  check(world->enqueue({std::move(request), input.data, output.data,
                        [pending](const runtime::Outcome& outcome) { pending->finish(outcome); }}));
  return Handle(std::move(pending));
}

}  // namespace

Handle allreduce_async(const TensorView& input, const TensorView& output,
                       const AllreduceOptions& options) {
  runtime::Request request;
  request.name = options.name;
  request.kind = Kind::allreduce;
  request.op = options.op;
  request.prescale = options.prescale;
  request.postscale = options.postscale;
  return enqueue(std::move(request), input, output);
}

Handle allreduce_async(const TensorView& tensor, const AllreduceOptions& options) {
  return allreduce_async(tensor, tensor, options);
}

Handle broadcast_async(const TensorView& tensor, const BroadcastOptions& options) {
  runtime::Request request;
  request.name = options.name;
  request.kind = Kind::broadcast;
  request.root = options.root;
  return enqueue(std::move(request), tensor, tensor);
}

Handle barrier_async(const BarrierOptions& options) {
  runtime::Request request;
  request.name = options.name;
  request.kind = Kind::barrier;
  const TensorView nothing{nullptr, {0}, DataType::uint8};
  return enqueue(std::move(request), nothing, nothing);
}

void allreduce(const TensorView& tensor, const AllreduceOptions& options) {
  allreduce_async(tensor, options).wait();
}

void allreduce(const TensorView& input, const TensorView& output, const AllreduceOptions& options) {
  allreduce_async(input, output, options).wait();
}

void broadcast(const TensorView& tensor, const BroadcastOptions& options) {
  broadcast_async(tensor, options).wait();
}

void barrier(const BarrierOptions& options) { barrier_async(options).wait(); }

}  // namespace hvd
