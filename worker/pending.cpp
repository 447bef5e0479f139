#include "worker/pending.h"

#include <hvd/collectives.h>
#include <hvd/error.h>
#include <hvd/handle.h>

#include "worker/process_world.h"

namespace hvd {
namespace detail {

std::shared_ptr<Pending> Pending::start(std::vector<adapter::Submission> works, bool with_room,
                                        const std::string& group) {
  auto pending = std::make_shared<Pending>(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (with_room) {
      works[i].allocate = [pending, i, type = works[i].input.type](const auto& shape) {
        return (pending->parts_[i].tensor = Tensor(shape, type)).data();
      };
    }
    works[i].done = [pending, i](const adapter::Completion& completion) {
      pending->finish(i, completion);
    };
  }
  if (works.size() == 1 && group.empty()) {
    adapter::submit(std::move(works.front()));
  } else {
    adapter::submit_group(group, std::move(works));
  }
  return pending;
}

void Pending::finish(std::size_t part, const adapter::Completion& completion) {
  std::unique_lock lock(mutex_);
  parts_[part].received_splits = completion.received_splits;
  parts_[part].last_joined = completion.last_joined;
  parts_[part].process_set = completion.process_set;
  if (completion.error && !error_) error_ = completion.error;
  if (--left_ != 0) return;
  const auto callbacks = std::exchange(callbacks_, {});
  finished_.notify_all();
  lock.unlock();
  for (const auto& callback : callbacks) callback(error_);
}

bool Pending::ready() const {
  const std::lock_guard lock(mutex_);
  return left_ == 0;
}

void Pending::wait() const {
  {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return left_ == 0; });
    if (!error_) return;
  }
  try {
    std::rethrow_exception(error_);  // never changes again
  } catch (const CollectiveError&) {
    worker::ProcessWorld::instance().await_stop_of_job();
    throw;
  }
}

void Pending::on_done(std::function<void(std::exception_ptr)> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (left_ != 0) return callbacks_.push_back(std::move(callback));
  }
  callback(error_);
}

std::vector<Pending::Part> Pending::take() {
  wait();
  const std::lock_guard lock(mutex_);
  if (std::exchange(taken_, true)) {
    throw InvalidArgumentError("the result of this call has been taken before");
  }
  return std::move(parts_);
}

}  // namespace detail

Handle::Handle(std::shared_ptr<detail::Pending> pending) : pending_(std::move(pending)) {}
bool Handle::ready() const { return !pending_ || pending_->ready(); }
void Handle::wait() const {
  if (pending_) pending_->wait();
}
void Handle::on_done(std::function<void(std::exception_ptr)> done) const {
  pending_ ? pending_->on_done(std::move(done)) : done(nullptr);
}

namespace {

std::vector<detail::Pending::Part> take(const std::shared_ptr<detail::Pending>& pending) {
  if (!pending) throw InvalidArgumentError("this is the future of nothing");
  return pending->take();
}

}  // namespace

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
