#include "runtime/tensor_queue.h"

#include "base/text.h"

namespace hvd::runtime {

Failure TensorQueue::push(Entry entry, bool& first) {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  const std::string name = entry.request.name;
  if (!names_.insert(name).second) {
    return Status(Code::already_exists,
                  cat(kind_name(entry.request.kind), " \"", name,
                      "\": a tensor of this name is already in flight on this rank. Wait for it, "
                      "or use another name."));
  }
  first = undrained_.empty();
  undrained_.push_back(entry.request);
  waiting_.emplace(name, Waiting{std::move(entry)});
  return {};
}

std::vector<Request> TensorQueue::drain() {
  const std::lock_guard lock(mutex_);
  for (const auto& request : undrained_) waiting_.at(request.name).drained = true;
  return std::exchange(undrained_, {});
}

std::vector<Entry> TensorQueue::take(const std::vector<ResponseTensor>& tensors) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  const std::lock_guard lock(mutex_);
  for (const auto& tensor : tensors) {
    const auto found = waiting_.find(tensor.request.name);
    if (found == waiting_.end() || !found->second.drained) continue;
    entries.push_back(std::move(found->second.entry));
    waiting_.erase(found);
  }
  return entries;
}

void TensorQueue::finish(const std::vector<Entry>& entries) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries) names_.erase(entry.request.name);
  if (names_.empty()) emptied_.notify_all();
}

std::vector<Entry> TensorQueue::close(const Failure& why) {
  std::vector<Entry> entries;
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return entries;
  closed_ = why;
  undrained_.clear();
  entries.reserve(waiting_.size());
  for (auto& [name, waiting] : waiting_) {
    names_.erase(name);
    entries.push_back(std::move(waiting.entry));
  }
  waiting_.clear();
  if (names_.empty()) emptied_.notify_all();
  return entries;
}

bool TensorQueue::close_when_empty(const Failure& why, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  if (!emptied_.wait_until(lock, deadline, [this] { return names_.empty(); })) return false;
  if (closed_.ok()) closed_ = why;
  return true;
}

std::size_t TensorQueue::size() const {
  const std::lock_guard lock(mutex_);
  return names_.size();
}

}  // namespace hvd::runtime
