#include "runtime/tensor_queue.h"

#include "base/text.h"

namespace hvd::runtime {

Status TensorQueue::check(const Request& request) const {
  const auto refuse = [&](Code code, const auto&... why) {
    return Status(code, cat(kind_name(request.kind), " \"", request.name, "\": ", why...));
  };
  if (joined_ && request.kind == Kind::join) {
    return refuse(Code::invalid_argument, "this rank has joined already, and waits for the others");
  }
  if (joined_) {
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
  if (in_flight_.contains(view_of(request))) {
    return refuse(Code::invalid_argument,
                  "a tensor of this name is already in flight on this rank. Wait for it, or use "
                  "another name.");
  }
  return {};
}

// Who has two groups of one name in flight cannot be told from who disagrees about one.
Status TensorQueue::check_groups(std::span<const Entry> entries) const {
  if (groups_.empty()) return {};
  for (const auto& entry : entries) {
    const Request& request = entry.request;
    if (request.group.empty()) continue;
    if (!groups_.contains(TensorKeyView(negotiated_in(request), request.group))) continue;
    return {Code::invalid_argument,
            cat(kind_name(request.kind), " \"", request.name, "\": group \"", request.group,
                "\" is already in flight on this rank. Wait for it, or use another name.")};
  }
  return {};
}

Failure TensorQueue::push(std::span<Entry> entries, bool& first) {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  if (Status refused = check_groups(entries); !refused.ok()) return refused;
  const bool none_waited = undrained_.empty();
  if (recorder_ != nullptr) recorder_->begin(entries);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (Status refused = check(entries[i].request); !refused.ok()) {
      // Back to where they came from: the caller keeps what was refused.
      while (i-- > 0) {
        const auto found = in_flight_.find(key_of(undrained_.back()));
        entries[i] = std::move(found->second.entry);
        forget(entries[i].request);
        undrained_.pop_back();
      }
      if (recorder_ != nullptr) recorder_->forget(entries);
      return refused;
    }
    const Request& request = entries[i].request;
    if (request.kind == Kind::join) joined_ = true;
    if (!request.group.empty()) ++groups_[{negotiated_in(request), request.group}];
    undrained_.push_back(request);
    auto key = key_of(request);
    in_flight_.emplace(std::move(key), InFlight{std::move(entries[i]), pushed_++});
  }
  first = none_waited && !entries.empty();
  if (busy_since_ == kNever && !in_flight_.empty()) busy_since_ = Clock::now();
  return {};
}

std::vector<Request> TensorQueue::drain() {
  const std::lock_guard lock(mutex_);
  if (recorder_ != nullptr && !undrained_.empty()) recorder_->asked();
  drained_ = pushed_;
  return std::exchange(undrained_, {});
}

Entry TensorQueue::take(InFlight& in_flight) {
  in_flight.taken = true;
  return std::move(in_flight.entry);
}

void TensorQueue::forget(const Request& request) {
  const auto found = in_flight_.find(view_of(request));
  if (found == in_flight_.end()) return;
  if (request.kind == Kind::join) joined_ = false;
  if (!request.group.empty()) {
    const auto group = groups_.find(TensorKeyView(negotiated_in(request), request.group));
    if (--group->second == 0) groups_.erase(group);
  }
  in_flight_.erase(found);
}

std::vector<Entry> TensorQueue::take(const std::vector<SharedTensor>& tensors) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  const std::lock_guard lock(mutex_);
  for (const auto& tensor : tensors) {
    const auto found = in_flight_.find(view_of(tensor->request));
    if (found == in_flight_.end() || found->second.taken || found->second.order >= drained_) {
      continue;
    }
    entries.push_back(take(found->second));
  }
  return entries;
}

void TensorQueue::finish(const std::vector<Entry>& entries) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries) forget(entry.request);
  note_idle();
}

std::vector<Entry> TensorQueue::close(const Failure& why) {
  std::vector<Entry> entries;
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return entries;
  closed_ = why;
  undrained_.clear();
  for (auto& [key, in_flight] : in_flight_) {
    if (!in_flight.taken) entries.push_back(take(in_flight));
  }
  for (const auto& entry : entries) forget(entry.request);
  note_idle();
  return entries;
}

void TensorQueue::note_idle() {
  if (!in_flight_.empty()) return;
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
  if (!emptied_.wait_until(lock, deadline, [this] { return in_flight_.empty(); })) return false;
  if (closed_.ok()) closed_ = why;
  return true;
}

std::size_t TensorQueue::size() const {
  const std::lock_guard lock(mutex_);
  return in_flight_.size();
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
  for (auto& [key, in_flight] : in_flight_) {
    if (key.process_set == process_set && !in_flight.taken) entries.push_back(take(in_flight));
  }
  return entries;
}

}  // namespace hvd::runtime
