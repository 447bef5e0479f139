#include "worker/pending.h"

#include <algorithm>

#include <hvd/collectives.h>
#include <hvd/error.h>
#include <hvd/handle.h>

#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "runtime/control/world.h"
#include "runtime/core/request.h"
#include "runtime/core/threads.h"
#include "worker/enqueue.h"
#include "worker/process/process_world.h"

namespace hvd {
namespace detail {
namespace {

// An exception of a callback has no caller to go to, and must not end the thread that runs it.
void call(const std::function<void(std::exception_ptr)>& callback,
          const std::exception_ptr& error) {
  try {
    callback(error);
  } catch (const std::exception& thrown) {
    HVD_LOG(error, "a callback of Handle::on_done() has thrown: " << thrown.what());
  } catch (...) {
    if (thread_is_ending()) throw;
    HVD_LOG(error,
            "a callback of Handle::on_done() has thrown something other than a std::exception");
  }
}

}  // namespace

std::shared_ptr<Pending> Pending::start(std::vector<adapter::Submission> works, Room room,
                                        const std::string& group) {
  auto pending = std::make_shared<Pending>(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (room == Room::made) {
      works[i].allocate = [pending, i, type = works[i].input.type,
                           device = works[i].input.device](const auto& shape) {
        return (pending->parts_[i].tensor = Tensor(shape, type, device)).data();
      };
    }
    pending->parts_[i].op = works[i].op;
    works[i].done = [pending, i](const adapter::Completion& completion) {
      pending->finish(i, completion);
    };
  }
  constexpr auto kWakes = worker::Done::wakes_only;
  pending->world_ = group.empty() ? worker::enqueue(std::move(works.front()), kWakes)
                                  : worker::enqueue_group(group, std::move(works), kWakes);
  return pending;
}

void Pending::finish(std::size_t part, const adapter::Completion& completion) {
  std::unique_lock lock(mutex_);
  auto& result = parts_[part];
  result.received_splits = completion.received_splits;
  result.contributors = completion.contributors;
  result.last_joined = completion.last_joined;
  result.process_set = completion.process_set;
  if (completion.error && !error_) error_ = completion.error;

  if (--left_ != 0) return;
  finished_.notify_all();
  if (callbacks_.empty()) {
    delivered_ = true;
    return;
  }

  lock.unlock();
  // A thread that drives progress itself may hold locks that the callbacks want. Without callbacks
  // there may be no world_ yet.
  const auto world = world_.lock();
  if (world && runtime::CallerProgressScope::is_active()) {
    world->post([self = shared_from_this()] { self->call_back(); });
    return;
  }
  if (world) world->notify_caller();
  call_back();
}

void Pending::call_back() {
  std::unique_lock lock(mutex_);
  // Callbacks that come meanwhile, also from a callback, wait for their turn.
  while (!callbacks_.empty()) {
    auto callbacks = std::exchange(callbacks_, {});
    lock.unlock();
    for (const auto& callback : callbacks) call(callback, error_);
    callbacks.clear();  // what they hold may ask this handle when it goes, too
    lock.lock();
  }
  delivered_ = true;
}

bool Pending::ready() const {
  const std::lock_guard lock(mutex_);
  return left_ == 0;
}

void Pending::drive_world_until(TimePoint deadline) const {
  const auto world = ready() ? nullptr : world_.lock();
  // Not one that has been left.
  if (world && world == worker::ProcessWorld::instance().world()) {
    world->progress_until([this] { return ready(); }, deadline);
  }
}

void Pending::check_process() const {
  if (ready() || starter_ == ::getpid()) return;
  throw NotInitializedError(
      "this process was forked from the one that started the work: only that one can wait for it");
}

void Pending::wait() const {
  check_process();
  drive_world_until(kNever);
  {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return left_ == 0; });
  }
  throw_error();
}

bool Pending::wait_until(TimePoint deadline) const {
  check_process();
  if (Clock::now() < deadline) drive_world_until(deadline);
  {
    std::unique_lock lock(mutex_);
    if (!finished_.wait_until(lock, deadline, [this] { return left_ == 0; })) return false;
  }
  throw_error();
  return true;
}

void Pending::throw_error() const {
  if (!error_) return;
  try {
    std::rethrow_exception(error_);
  } catch (const CollectiveError&) {
    worker::ProcessWorld::instance().before_failure_is_thrown();
    throw;
  } catch (const HostsUpdated&) {
    worker::ProcessWorld::instance().before_failure_is_thrown();
    throw;
  }
}

void Pending::on_done(std::function<void(std::exception_ptr)> callback) {
  check_process();
  {
    const std::lock_guard lock(mutex_);
    if (!delivered_) return callbacks_.push_back(std::move(callback));
  }
  call(callback, error_);
}

std::vector<Pending::Part> Pending::take() {
  wait();
  const std::lock_guard lock(mutex_);
  if (std::exchange(taken_, true)) {
    throw InvalidArgumentError("Future::get(): the result of this call has been taken before");
  }
  return std::move(parts_);
}

std::vector<Pending::Part> take(const std::shared_ptr<Pending>& pending) {
  if (!pending) throw InvalidArgumentError("Future::get(): this is the future of no call");
  return pending->take();
}

}  // namespace detail

Handle::Handle(std::shared_ptr<detail::Pending> pending) : pending_(std::move(pending)) {}
bool Handle::ready() const { return !pending_ || pending_->ready(); }
void Handle::wait() const {
  if (pending_) pending_->wait();
}
bool Handle::wait_for(std::chrono::milliseconds timeout) const {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongest = std::chrono::hours(24 * 365);  // the clock has an end
  if (!pending_) return true;
  return pending_->wait_until(Clock::now() + std::clamp(timeout, milliseconds(0), kLongest));
}

void Handle::on_done(std::function<void(std::exception_ptr)> done) const {
  if (!done) throw InvalidArgumentError("Handle::on_done(): there is no function to call");
  // One without work is done already.
  (pending_ ? pending_ : std::make_shared<detail::Pending>(0))->on_done(std::move(done));
}

template <>
Tensor Future<Tensor>::get() {
  return std::move(take(pending_).front().tensor);
}

template <>
std::vector<Tensor> Future<std::vector<Tensor>>::get() {
  std::vector<Tensor> tensors;
  for (auto& part : take(pending_)) tensors.push_back(std::move(part.tensor));
  return tensors;
}

template <>
Rows Future<Rows>::get() {
  auto part = std::move(take(pending_).front());
  return {std::move(part.tensor), std::move(part.received_splits)};
}

template <>
int Future<int>::get() {
  return take(pending_).front().last_joined;
}

}  // namespace hvd
