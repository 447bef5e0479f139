#include "runtime/negotiation/tensor_queue.h"

#include <algorithm>

#include "base/text.h"
#include "runtime/core/activity.h"
#include "runtime/core/prefetch.h"

namespace hvd::runtime {

TensorQueue::~TensorQueue() {
  if (waiting_ > 0) meter_.end_wait(trace::nanoseconds_now());
}

Status TensorQueue::check(const Request& request, const Slot* slot) const {
  const auto refuse = [&](Code code, const auto&... why) {
    return Status(code, cat(kind_name(request.kind), " \"", request.name, "\": ", why...));
  };
  if (joined_ && request.kind == Kind::join) {
    return refuse(Code::invalid_argument, "this rank has already joined, and waits for the others");
  }
  if (joined_) {
    return refuse(Code::invalid_argument,
                  "this rank has joined: it cannot make requests before all ranks have joined");
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

  if (is_among_named_ranks(request) &&
      std::find(request.ranks.begin(), request.ranks.end(), rank_) == request.ranks.end()) {
    if (request.by_members) {
      return refuse(Code::permission_denied, "rank ", rank_,
                    " is not one of the members, who alone call it: ranks ",
                    ranks_text(RankSet::of_ranks(request.ranks)));
    }
    return refuse(Code::invalid_argument, "this rank, ", rank_, ", neither sends nor receives it");
  }

  if (slot != nullptr && slot->busy) {
    return refuse(Code::invalid_argument,
                  "a tensor of this name is already in flight on this rank. Wait for it, or use "
                  "another name.");
  }

  return {};
}

// Two groups of one name in flight on a rank could not be told from a disagreement between ranks.
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

TensorQueue::Slot* TensorQueue::find(const TensorKeyView& key) {
  const auto found = slots_.find(key);
  return found == slots_.end() ? nullptr : &found->second;
}

TensorQueue::Slot* TensorQueue::find_idle_first(const TensorKeyView& key) {
  if (next_idle_ == idle_.end()) return find(key);
  fetch_after(next_idle_, idle_);
  Slot* const guess = *next_idle_;
  return TensorKeyEqual()(*guess->key, key) ? guess : find(key);
}

// With thousands of slots, hardly any is still in the processor's cache when the next step needs
// it.
void TensorQueue::fetch_after(std::list<Slot*>::iterator place, const std::list<Slot*>& of) {
  if (++place != of.end()) prefetch(*place, sizeof(Slot));
}

TensorQueue::Slot* TensorQueue::slot_of(const ResponseTensor& tensor) {
  if (const auto found = by_id_.find(tensor.cache_id); found != by_id_.end()) return found->second;
  return find(view_of(tensor.request));
}

TensorQueue::Slot& TensorQueue::add_slot(const Request& request) {
  if (idle_.size() > kMaxIdle) drop(*idle_.front());
  const auto added = slots_.try_emplace(key_of(request)).first;
  Slot& slot = added->second;
  slot.key = &added->first;
  slot.counts_steps = !request.name.starts_with(kStateNames);
  slot.place = idle_.insert(idle_.end(), &slot);
  return slot;
}

void TensorQueue::count_step(Slot& slot, std::int64_t now) {
  if (slot.step == step_) {
    ++step_;
    meter_.add_step(now);
  }
  slot.step = step_;
}

void TensorQueue::put(Slot& slot, Entry&& entry, std::int64_t now) {
  const Request& request = entry.request;
  if (request.kind == Kind::join) joined_ = true;
  if (!request.group.empty()) ++groups_[{slot.key->process_set, request.group}];
  slot.is_agreed = slot.is_agreed && equal_except_name(slot.entry.request, request);
  slot.busy = true;
  slot.taken = false;
  slot.entry = std::move(entry);
  slot.entry.times = {pushed_++, now};
  if (slot.counts_steps) count_step(slot, now);
  next_idle_ = std::next(slot.place);
  busy_.splice(busy_.end(), idle_, slot.place);
  undrained_.push_back(&slot);
}

void TensorQueue::release(Slot& slot) {
  const Request& request = slot.entry.request;
  if (request.kind == Kind::join) joined_ = false;
  if (!request.group.empty()) {
    const auto group = groups_.find(TensorKeyView(slot.key->process_set, request.group));
    if (--group->second == 0) groups_.erase(group);
  }
  slot.busy = false;
  idle_.splice(idle_.end(), busy_, slot.place);
}

void TensorQueue::remember(Slot& slot, const SharedTensor& agreed) {
  if (agreed->cache_id == ResponseTensor::kNotCached) return;
  if (slot.agreed != agreed) {
    if (slot.agreed != nullptr) by_id_.erase(slot.agreed->cache_id);
    slot.agreed = agreed;
    slot.is_agreed = false;
    by_id_[agreed->cache_id] = &slot;
  }
  // The cached request of a ragged tensor does not hold this rank's extent, so it cannot be
  // compared here.
  slot.is_agreed = slot.is_agreed || (!is_ragged(agreed->request) &&
                                      equal_except_name(agreed->request, slot.entry.request));
}

void TensorQueue::drop(Slot& slot) {
  if (slot.agreed != nullptr) by_id_.erase(slot.agreed->cache_id);
  close_lane(slot);
  if (next_idle_ == slot.place) ++next_idle_;
  idle_.erase(slot.place);
  slots_.erase(slots_.find(*slot.key));
}

Failure TensorQueue::push(std::span<Entry> entries, bool& first) {
  const auto now = trace::nanoseconds_now();
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  if (Status refused = check_groups(entries); !refused.ok()) return refused;

  const bool none_waited = undrained_.empty();
  const bool joins = std::any_of(entries.begin(), entries.end(), [](const Entry& entry) {
    return entry.request.kind == Kind::join;
  });
  // A rank joins after all its earlier requests.
  if (joins) settle_lanes();

  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Request& request = entries[i].request;
    Slot* slot = find_idle_first(view_of(request));
    if (Status refused = check(request, slot); !refused.ok()) {
      // Undo: the caller keeps the entries if one is refused.
      while (i-- > 0) {
        Slot& last = *undrained_.back();
        undrained_.pop_back();
        release(last);
        entries[i] = std::move(last.entry);
        last.is_agreed = false;
        last.step = 0;
        --pushed_;
      }
      return refused;
    }
    put(slot != nullptr ? *slot : add_slot(request), std::move(entries[i]), now);
  }

  add_waiting(entries.size(), now);
  const bool none_watched = !lanes_watched_.load(std::memory_order_relaxed);
  publish_newest(entries.size());
  first = (none_waited && !undrained_.empty()) || (none_watched && lanes_watched_);
  if (busy_since_ == kNever && !busy_.empty()) busy_since_ = Clock::now();
  return {};
}

std::vector<SubmittedRequest> TensorQueue::drain() {
  std::vector<SubmittedRequest> all;
  const std::lock_guard lock(mutex_);
  drained_ = pushed_;
  if (undrained_.empty()) return all;

  all.reserve(undrained_.size());
  const auto now = trace::nanoseconds_now();
  for (Slot* const slot : undrained_) {
    slot->entry.times.asked = now;
    if (slot->is_agreed) {
      all.push_back({slot->agreed, nullptr});
    } else {
      all.push_back({nullptr, std::make_unique<Request>(slot->entry.request)});
    }
  }

  undrained_.clear();
  return all;
}

bool TensorQueue::any_to_drain() const {
  const std::lock_guard lock(mutex_);
  return !undrained_.empty();
}

bool TensorQueue::all_plain(const std::vector<SharedTensor>& tensors) {
  const std::lock_guard lock(mutex_);
  return std::all_of(tensors.begin(), tensors.end(), [this](const SharedTensor& tensor) {
    const Slot* const slot = slot_of(*tensor);
    return slot == nullptr || !slot->busy || slot->entry.is_plain();
  });
}

void TensorQueue::take(const std::vector<SharedTensor>& tensors, std::int64_t decided,
                       std::int64_t begun, Slots& slots, std::span<const LaneSpot> lanes) {
  const std::size_t others = slots.size();
  slots.reserve(others + tensors.size());
  const std::lock_guard lock(mutex_);
  auto guess = busy_.end();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    const bool is_next = guess != busy_.end() && (*guess)->agreed == tensor;
    Slot* const slot = is_next ? *guess : slot_of(*tensor);
    if (slot == nullptr || !slot->busy || slot->taken || slot->entry.times.order >= drained_ ||
        slot->lane != nullptr) {
      continue;
    }
    guess = std::next(slot->place);
    if (guess != busy_.end()) fetch_after(guess, busy_);
    remember(*slot, tensor);
    if (!lanes.empty() && lanes[i].lane != LaneSpot::kNone) set_lane(*slot, lanes[i]);
    slot->taken = true;
    slot->entry.times.decided = decided;
    slot->entry.times.begun = begun;
    slots.push_back(slot);
  }
  subtract_waiting(slots.size() - others, decided);
}

void TensorQueue::add_waiting(std::size_t entries, std::int64_t now) {
  if (entries == 0) return;
  if (waiting_ == 0) meter_.begin_wait(now);
  waiting_ += entries;
}

void TensorQueue::subtract_waiting(std::size_t entries, std::int64_t now) {
  if (entries == 0) return;
  waiting_ -= entries;
  if (waiting_ == 0) meter_.end_wait(now);
}

void TensorQueue::finish(const Slots& slots) {
  WorkMeter::Works works{};
  {
    const std::lock_guard lock(mutex_);
    for (Slot* const slot : slots) {
      const Request& request = slot->entry.request;
      auto& work = works[static_cast<std::size_t>(request.kind)];
      ++work.operations;
      work.bytes += request.bytes();
      if (slot->lane != nullptr && slot->lane->in_use()) {
        slot->lane->end();
        if (lanes_are_over()) close_lane(*slot);
      }
      release(*slot);
    }
    note_end();
  }
  meter_.add(works);
}

void TensorQueue::refuse(const Failure& why) {
  const std::lock_guard lock(mutex_);
  if (closed_.ok()) closed_ = why;
}

std::vector<Entry> TensorQueue::close(const Failure& why) {
  refuse(why);
  std::vector<Entry> entries;
  const std::lock_guard lock(mutex_);
  undrained_.clear();
  for (auto next = busy_.begin(); next != busy_.end();) {
    Slot& slot = **next++;
    if (slot.taken) continue;
    release(slot);
    entries.push_back(std::move(slot.entry));
  }
  in_lanes_.clear();
  in_lanes_count_ = 0;
  subtract_waiting(entries.size(), trace::nanoseconds_now());
  note_end();
  return entries;
}

void TensorQueue::note_end() {
  if (!busy_.empty()) return;
  if (busy_since_ != kNever) busy_time_ += Clock::now() - busy_since_;
  busy_since_ = kNever;
  emptied_.notify_all();
}

Duration TensorQueue::busy_time(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return busy_since_ == kNever || now < busy_since_ ? busy_time_ : busy_time_ + (now - busy_since_);
}

bool TensorQueue::wait_empty(TimePoint deadline) const {
  std::unique_lock lock(mutex_);
  return emptied_.wait_until(lock, deadline, [this] { return busy_.empty(); });
}

std::size_t TensorQueue::size() const {
  const std::lock_guard lock(mutex_);
  return busy_.size();
}

void TensorQueue::visit(const std::function<void(const Entry&)>& visitor) const {
  const std::lock_guard lock(mutex_);
  for (const Slot* const slot : busy_) visitor(slot->entry);
}

void TensorQueue::use_lanes(ShmLayout memory) {
  const std::lock_guard lock(mutex_);
  lanes_.emplace(std::move(memory), static_cast<int>(sets_.members(kGlobalSet).size()));
}

void TensorQueue::allow_lanes(bool allowed) {
  const std::lock_guard lock(mutex_);
  lanes_allowed_ = allowed;
  if (!allowed) settle_lanes();
}

void TensorQueue::leave_lanes() {
  const std::lock_guard lock(mutex_);
  settle_lanes();
}

// Those of the newest entries that have a lane, and fit into it, need not be drained.
void TensorQueue::publish_newest(std::size_t entries) {
  if (!lanes_) return;
  const auto newest = undrained_.end() - static_cast<std::ptrdiff_t>(entries);
  const auto rest = std::remove_if(newest, undrained_.end(), [this](Slot* slot) {
    if (slot->lane == nullptr) return false;
    const Entry& entry = slot->entry;
    if (!slot->is_agreed || entry.ready || entry.allocate) close_lane(*slot);
    if (slot->lane == nullptr) return false;
    if (!slot->lane->publish(entry)) {
      slot->lane = nullptr;
      return false;
    }
    in_lanes_.push_back(slot);
    return true;
  });

  if (rest == undrained_.end()) return;
  undrained_.erase(rest, undrained_.end());
  in_lanes_count_ = in_lanes_.size();
  lanes_used_ = true;
  lanes_watched_ = true;
}

// All members are given their lane by the same response. One that does not want it any more must
// tell those that will come to it.
void TensorQueue::set_lane(Slot& slot, const LaneSpot& spot) {
  if (!lanes_) return;
  const auto& members = sets_.members(slot.key->process_set);
  Lane& lane = lanes_->open(spot, position_in(members, rank_), static_cast<int>(members.size()));
  if (!lane.is_open()) return;
  slot.lane = &lane;
  if (lanes_are_over()) close_lane(slot);
}

void TensorQueue::close_lane(Slot& slot) {
  if (slot.lane != nullptr && !slot.lane->in_use()) slot.lane->close();
  slot.lane = nullptr;
}

void TensorQueue::take_from_lane(Slot& slot, std::int64_t now, Slots& slots) {
  slot.taken = true;
  slot.entry.times.asked = slot.entry.times.enqueued;
  slot.entry.times.decided = slot.entry.times.begun = now;
  slots.push_back(&slot);
}

void TensorQueue::leave_lane(Slot& slot) {
  slot.lane->leave();
  slot.lane = nullptr;
  // No response that has been decided before can mean it.
  slot.entry.times.order = pushed_++;
  undrained_.push_back(&slot);
}

// All lanes are closed, or those of a set. What is left in one is complete, and is going to be
// taken.
void TensorQueue::settle_lanes(std::optional<int> process_set) {
  if (!lanes_) return;
  const auto is_meant = [process_set](const Slot& slot) {
    return slot.lane != nullptr &&
           slot.key->process_set == process_set.value_or(slot.key->process_set);
  };
  std::erase_if(in_lanes_, [&](Slot* slot) {
    if (!is_meant(*slot) || slot->lane->settle() == Lane::State::complete) return false;
    leave_lane(*slot);
    return true;
  });
  in_lanes_count_ = in_lanes_.size();
  for (auto& [key, slot] : slots_) {
    if (is_meant(slot) && !slot.lane->in_use()) close_lane(slot);
  }
}

bool TensorQueue::any_to_take_from_lanes(std::size_t most) {
  const std::lock_guard lock(mutex_);
  const std::size_t few = std::min(most, in_lanes_.size());
  const auto end = in_lanes_.begin() + static_cast<std::ptrdiff_t>(few);
  const bool any = std::any_of(in_lanes_.begin(), end, [](const Slot* slot) {
    return slot->lane->look() != Lane::State::waiting;
  });
  if (!any && few < in_lanes_.size()) std::rotate(in_lanes_.begin(), end, in_lanes_.end());
  return any;
}

std::size_t TensorQueue::take_some_from_lanes(std::int64_t now, Slots& slots) {
  constexpr std::size_t kMisses = 16;
  std::size_t misses = 0;
  return take_from_lanes(now, slots, [&misses](const Slot& slot) {
    if (misses == kMisses) return Lane::State::waiting;
    const auto state = slot.lane->look();
    if (state == Lane::State::waiting) ++misses;
    return state;
  });
}

std::size_t TensorQueue::take_all_from_lanes(std::int64_t now, Duration patience, Slots& slots) {
  const auto oldest = now - std::chrono::duration_cast<std::chrono::nanoseconds>(patience).count();
  return take_from_lanes(now, slots, [oldest](const Slot& slot) {
    return slot.entry.times.enqueued < oldest ? slot.lane->settle() : slot.lane->look();
  });
}

template <typename Look>
std::size_t TensorQueue::take_from_lanes(std::int64_t now, Slots& slots, const Look& look) {
  const std::lock_guard lock(mutex_);
  std::size_t left = 0;
  std::erase_if(in_lanes_, [&](Slot* slot) {
    const auto state = look(*slot);
    if (state == Lane::State::complete) take_from_lane(*slot, now, slots);
    if (state != Lane::State::closed) return state == Lane::State::complete;
    leave_lane(*slot);
    ++left;
    return true;
  });
  in_lanes_count_ = in_lanes_.size();
  lane_uses_ += slots.size();
  subtract_waiting(slots.size(), now);
  return left;
}

bool TensorQueue::keep_watching_lanes() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(lanes_used_, false) && in_lanes_.empty()) lanes_watched_ = false;
  return lanes_watched_;
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

bool TensorQueue::is_by_members(int process_set) const {
  const std::lock_guard lock(mutex_);
  return sets_.is_by_members(process_set);
}

void TensorQueue::open_set(const RankSet& members, bool by_members) {
  const std::lock_guard lock(mutex_);
  sets_.add(members, by_members);
}

void TensorQueue::close_set(int process_set, Slots& slots) {
  const auto is_of_it = [process_set](const Slot* slot) {
    return slot->key->process_set == process_set;
  };
  const std::lock_guard lock(mutex_);
  sets_.remove(process_set);
  // An entry that is complete in its lane ends well, as it does on the other members.
  settle_lanes(process_set);
  std::erase_if(undrained_, is_of_it);
  const std::size_t others = slots.size();
  for (Slot* const slot : busy_) {
    if (slot->taken || !is_of_it(slot) || slot->lane != nullptr) continue;
    slot->taken = true;
    slots.push_back(slot);
  }
  subtract_waiting(slots.size() - others, trace::nanoseconds_now());
}

}  // namespace hvd::runtime
