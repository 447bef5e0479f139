#include "runtime/tensor_queue.h"

#include "base/text.h"

namespace hvd::runtime {

Status TensorQueue::check(const Request& request) const {
  const auto refuse = [&](Code code, const auto&... why) {
    return Status(code, cat(kind_name(request.kind), " \"", request.name, "\": ", why...));
  };
  const bool has_joined = names_.contains({kGlobalSet, std::string(kJoinName)});
  if (has_joined && request.kind == Kind::join) {
    return refuse(Code::invalid_argument, "this rank has joined already, and waits for the others");
  }
  if (has_joined) {
    return refuse(Code::invalid_argument,
                  "this rank has joined: it cannot ask for anything before all have");
  }
  const int set = negotiated_in(request);
  if (const Status member = sets_.check_member(set, rank_); !member.ok()) {
    return refuse(member.code(), member.message());
  }
  if (request.kind == Kind::broadcast &&
      !sets_.members(set).contains(static_cast<RankSet::Value>(request.root))) {
    return refuse(Code::invalid_argument, "the root rank ", request.root, " is not in process set ",
                  set);
  }
  if (names_.contains(key_of(request))) {
    return refuse(Code::invalid_argument,
                  "a tensor of this name is already in flight on this rank. Wait for it, or use "
                  "another name.");
  }
  return {};
}

Failure TensorQueue::push(std::vector<Entry> entries, bool& first) {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  std::size_t pushed = 0;
  for (const auto& entry : entries) {
    if (Status refused = check(entry.request); !refused.ok()) {
      for (std::size_t i = 0; i < pushed; ++i) names_.erase(key_of(entries[i].request));
      return refused;
    }
    names_.insert(key_of(entry.request));
    ++pushed;
  }
  first = undrained_.empty();
  if (busy_since_ == kNever && !names_.empty()) busy_since_ = Clock::now();
  for (auto& entry : entries) {
    undrained_.push_back(entry.request);
    auto key = key_of(entry.request);
    waiting_.emplace(std::move(key), Waiting{std::move(entry)});
  }
  return {};
}

std::vector<Request> TensorQueue::drain() {
  const std::lock_guard lock(mutex_);
  for (const auto& request : undrained_) waiting_.at(key_of(request)).drained = true;
  return std::exchange(undrained_, {});
}

std::vector<Entry> TensorQueue::take(const std::vector<ResponseTensor>& tensors) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  const std::lock_guard lock(mutex_);
  for (const auto& tensor : tensors) {
    const auto found = waiting_.find(key_of(tensor.request));
    if (found == waiting_.end() || !found->second.drained) continue;
    entries.push_back(std::move(found->second.entry));
    waiting_.erase(found);
  }
  return entries;
}

void TensorQueue::finish(const std::vector<Entry>& entries) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries) names_.erase(key_of(entry.request));
  note_idle();
}

std::vector<Entry> TensorQueue::close(const Failure& why) {
  std::vector<Entry> entries;
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return entries;
  closed_ = why;
  undrained_.clear();
  entries.reserve(waiting_.size());
  for (auto& [key, waiting] : waiting_) {
    names_.erase(key);
    entries.push_back(std::move(waiting.entry));
  }
  waiting_.clear();
  note_idle();
  return entries;
}

void TensorQueue::note_idle() {
  if (!names_.empty()) return;
  if (busy_since_ != kNever) busy_time_ += Clock::now() - busy_since_;
  busy_since_ = kNever;
  emptied_.notify_all();
}

Duration TensorQueue::busy_time(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return busy_since_ == kNever || now < busy_since_ ? busy_time_ : busy_time_ + (now - busy_since_);
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

Result<RankSet> TensorQueue::members(int process_set) const {
  const std::lock_guard lock(mutex_);
  HVD_RETURN_IF_ERROR(sets_.check_exists(process_set));
  return sets_.members(process_set);
}

std::vector<int> TensorQueue::process_sets() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ids;
  for (const auto& [id, members] : sets_.all()) ids.push_back(id);
  return ids;
}

void TensorQueue::open_set(const RankSet& members) {
  const std::lock_guard lock(mutex_);
  sets_.add(members);
}

std::vector<Entry> TensorQueue::close_set(int process_set) {
  std::vector<Entry> entries;
  const std::lock_guard lock(mutex_);
  sets_.remove(process_set);
  std::erase_if(undrained_, [&](const Request& r) { return negotiated_in(r) == process_set; });
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    const auto current = waiting++;
    if (current->first.process_set != process_set) continue;
    entries.push_back(std::move(current->second.entry));
    waiting_.erase(current);
  }
  return entries;
}

}  // namespace hvd::runtime
