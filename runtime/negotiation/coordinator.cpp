#include "runtime/negotiation/coordinator.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// The groups that the ranks of a row named: one, or several if they disagree; empty if no rank
// named one.
std::vector<GroupKey> groups_of(const MessageTable::Row& row, const ResponseTensor* cached) {
  std::vector<GroupKey> keys;
  const auto note = [&keys](const Request& request) {
    if (request.group.empty()) return;
    GroupKey key{request.process_set, request.group, request.group_size};
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(std::move(key));
  };
  if (row.id && cached != nullptr) note(cached->request);
  for (const auto& variant : row.whole) note(variant.request);
  return keys;
}

// The request of some rank of a row.
const Request& request_of(const MessageTable::Row& row, const ResponseTensor* cached) {
  return row.whole.empty() ? cached->request : row.whole.front().request;
}

}  // namespace

Coordinator::Coordinator(const ControlTree& tree, const ResponseCache& cache,
                         const ProcessSets& sets, const CoordinatorOptions& options)
    : tree_(tree),
      cache_(cache),
      sets_(sets),
      options_(options),
      table_(cache, sets, tree.subtree(0)) {}

Status Coordinator::take(int from, const RequestList& message, TimePoint now) {
  last_requests_.heard(from, message, cache_, now);
  for (const auto& word : message.last_requests) last_requests_.heard(word, now);

  const auto refuse_the_closed = [this](const RankSet& ranks) -> Status {
    if (!ranks.intersects(closing_)) return {};
    const auto rank = static_cast<int>(ranks.intersection(closing_).front());
    return {Code::failed_precondition, cat(describe(rank), " made a request after it had closed")};
  };

  for (const auto& known : message.cached) {
    HVD_RETURN_IF_ERROR(refuse_the_closed(known.ranks));
    MessageTable::Touched touched;
    HVD_RETURN_IF_ERROR(table_.add(known, now, touched));
    decide_touched(touched, now);
  }

  for (const auto& asked : message.full) {
    HVD_RETURN_IF_ERROR(refuse_the_closed(asked.ranks));
    HVD_RETURN_IF_ERROR(check_request(asked.request, tree_.size()));
    MessageTable::Touched touched;
    HVD_RETURN_IF_ERROR(table_.add(asked, now, touched));
    decide_touched(touched, now);
  }

  if (!message.joined.empty()) {
    HVD_RETURN_IF_ERROR(refuse_the_closed(message.joined));
    HVD_RETURN_IF_ERROR(table_.join(message.joined));
    join(message.joined, now);
  }

  keeps_ids_ = keeps_ids_ || message.joins_soon || message.in_shutdown;
  in_shutdown_ = in_shutdown_ || message.in_shutdown;
  auto closing = message.closing;
  closing.unite(message.left);
  closing.subtract(closing_);
  if (!closing.empty()) close(closing, now);
  left_.unite(message.left);

  if (!table_.empty()) next_group_look_ = std::min(next_group_look_, now + kGroupTimeout);
  return {};
}

// Each part of a message is decided before the next is added: after a rank has closed, a rank may
// have received an error for the first part, and request the same tensor again in the next.
void Coordinator::decide_touched(const MessageTable::Touched& touched, TimePoint now) {
  for (const auto& known : touched.complete) {
    decided_ids_.unite(known.ids);
    known.ids.for_each([&](CacheId id) { decide_known(id, now); });
  }
  for (const auto& key : touched.rows) {
    const auto& row = *table_.find(key);
    if (table_.complete(key, row)) {
      decide(key, now);
    } else if (waits_in_vain(key, row)) {
      fail_for_shutdown(key, now);
    }
  }
}

void Coordinator::note_order(const Request& request) {
  // The other ranks do not wait for what only some ranks ask for: it has no place in their order.
  if (!options_.deterministic || is_among_named_ranks(request)) return;
  if (order_of_.try_emplace(key_of(request), next_order_).second) unreleased_.insert(next_order_++);
}

// All ranks requested the cached tensor.
void Coordinator::decide_known(CacheId id, TimePoint now) {
  ReadyTensor ready{cache_.get(id), {}, now, {}, -1};
  const Request& request = ready.request();
  if (request.group.empty()) {
    enqueue(std::move(ready));
  } else {
    const GroupKey group{request.process_set, request.group, request.group_size};
    enqueue(groups_.decided({group}, std::move(ready)));
  }
}

void Coordinator::decide(const TensorKey& key, TimePoint now) {
  auto row = table_.take(key);
  const auto participants = table_.participants(key, row);
  const auto cached = row.id ? cache_.get(*row.id) : nullptr;
  const auto groups = groups_of(row, cached.get());
  auto agreement = check_consistency(std::move(row), cached.get(), participants, tree_);
  decided(groups, {std::move(agreement.tensor), std::move(agreement.error), now,
                   std::move(agreement.joined), -1});
}

void Coordinator::decided(const std::vector<GroupKey>& groups, ReadyTensor tensor) {
  decided_.insert(view_of(tensor.request()));
  if (groups.empty()) {
    enqueue(std::move(tensor));
  } else {
    enqueue(groups_.decided(groups, std::move(tensor)));
  }
}

Status Coordinator::shutdown_error(const Request& request, RankSet::Value closing) const {
  return {Code::failed_precondition,
          cat(kind_name(request.kind), " \"", request.name,
              "\" cannot complete: ", describe(static_cast<int>(closing)),
              " has already called shutdown(). All ranks must make the same calls.")};
}

bool Coordinator::waits_in_vain(const TensorKey& key, const MessageTable::Row& row) const {
  return !closing_.empty() && closing_.intersects(table_.missing(key, row));
}

// The rank that it waits for will not request the rest of its group, either.
void Coordinator::fail_for_shutdown(const TensorKey& key, TimePoint now) {
  const auto& row = *table_.find(key);
  const auto closing = closing_.intersection(table_.missing(key, row)).front();
  const auto cached = row.id ? cache_.get(*row.id) : nullptr;
  const Status error = shutdown_error(request_of(row, cached.get()), closing);
  for (const auto& group : groups_of(row, cached.get())) {
    enqueue(groups_.fail_for_good(group, error));
  }
  fail(key, error, now);
}

// The waiting tensors of one group name in one process set.
struct Coordinator::MismatchedGroup {
  struct Part {
    int tensors = 0;  // waiting tensors of one rank
    GroupKey key;     // the group that this rank named
  };
  std::vector<TensorKey> tensors;
  std::map<int, Part> parts;  // by rank
  TimePoint newest{};

  void note(const RankSet& ranks, const Request& request) {
    ranks.for_each([&](RankSet::Value rank) {
      auto& part = parts[static_cast<int>(rank)];
      ++part.tensors;
      part.key = {request.process_set, request.group, request.group_size};
    });
  }
};

void Coordinator::find_mismatched_groups(TimePoint now) {
  next_group_look_ = kNever;
  if (table_.empty() || !closing_.empty()) return;
  if (const auto ripe = table_.oldest() + kGroupTimeout; ripe > now) {
    next_group_look_ = ripe;
    return;
  }

  std::map<std::pair<int, std::string>, MismatchedGroup> groups;
  for (const auto& [key, row] : table_.rows()) {
    const auto cached = row.id ? cache_.get(*row.id) : nullptr;
    const Request& request = request_of(row, cached.get());
    if (request.group.empty()) continue;
    auto& group = groups[{request.process_set, request.group}];
    group.tensors.push_back(key);
    group.newest = std::max(group.newest, row.since);
    if (cached != nullptr) group.note(row.by_id, cached->request);
    for (const auto& variant : row.whole) group.note(variant.ranks, variant.request);
  }

  for (const auto& [name, group] : groups) {
    if (group.newest + kGroupTimeout > now) continue;
    const Status error = mismatch_of(group);
    if (error.ok()) continue;
    for (const auto& key : group.tensors) fail(key, error, now);
    for (const auto& [rank, part] : group.parts) enqueue(groups_.fail(part.key, error));
  }

  if (!table_.empty()) next_group_look_ = now + kGroupTimeout;
}

// Ok as long as some rank may still request its part.
Status Coordinator::mismatch_of(const MismatchedGroup& group) const {
  const auto& one = *group.parts.begin();
  bool disputed = false;
  for (const auto& [rank, part] : group.parts) {
    const auto progress = groups_.progress(part.key);
    if (part.tensors + progress.decided < part.key.size) return {};
    disputed = disputed || progress.disputed;
  }

  // The rank to be named has requested a different group, and not the first tensor of this one.
  const auto& first = table_.rows().at(group.tensors.front());
  const int asked = static_cast<int>(first.asked.front());
  int other = -1;
  auto ranks = sets_.members(one.second.key.process_set);
  ranks.subtract(table_.joined());
  bool all = true;
  ranks.for_each([&](RankSet::Value value) {
    const int rank = static_cast<int>(value);
    all = all && (disputed || group.parts.contains(rank));
    if (other < 0 && !first.asked.contains(value)) other = rank;
  });
  if (!all || other < 0) return {};
  const auto& mine = group.parts.at(asked).key;
  const auto theirs = group.parts.find(other);
  return {
      Code::invalid_argument,
      cat("Mismatched groups: One rank had group \"", mine.name, "\" of ", mine.size,
          " with the tensor \"", group.tensors.front().name, "\", but another rank had group \"",
          mine.name, "\"", theirs == group.parts.end() ? "" : cat(" of ", theirs->second.key.size),
          " without it. (", describe(asked), " and ", describe(other), ")")};
}

void Coordinator::fail(const TensorKey& key, Status error, TimePoint now) {
  const auto row = table_.take(key);
  const auto cached = row.id ? cache_.get(*row.id) : nullptr;
  auto tensor = std::make_shared<ResponseTensor>();
  tensor->request = request_of(row, cached.get());
  decided({}, {std::move(tensor), std::move(error), now, {}, -1});
}

void Coordinator::close(const RankSet& ranks, TimePoint now) {
  closing_.unite(ranks);
  table_.only_rows();
  if (!table_.joined().empty()) fail_join_in_vain(now);
  std::vector<TensorKey> stranded;
  for (const auto& [key, row] : table_.rows()) {
    if (waits_in_vain(key, row)) stranded.push_back(key);
  }
  for (const auto& key : stranded) fail_for_shutdown(key, now);
}

void Coordinator::join(const RankSet& ranks, TimePoint now) {
  if (fail_join_in_vain(now)) return;
  last_joined_ = static_cast<int>(ranks.back());
  std::vector<TensorKey> complete;
  for (const auto& [key, row] : table_.rows()) {
    if (table_.complete(key, row)) complete.push_back(key);
  }
  for (const auto& key : complete) decide(key, now);
  if (table_.joined() == tree_.subtree(0)) end_join({}, now);
}

// Whether the ranks that have joined wait for one that never will.
bool Coordinator::fail_join_in_vain(TimePoint now) {
  const auto absent = closing_.difference(table_.joined());
  if (absent.empty()) return false;
  table_.join_ended();
  Request request;
  request.kind = Kind::join;
  request.name = kJoinName;
  end_join(shutdown_error(request, absent.front()), now);
  return true;
}

void Coordinator::end_join(Status error, TimePoint now) {
  auto join = std::make_shared<ResponseTensor>();
  join->request.kind = Kind::join;
  join->request.name = kJoinName;
  ReadyTensor ready;

  ready.tensor = std::move(join);
  ready.error = std::move(error);
  ready.since = now;
  ready.last_joined = last_joined_;

  // All ranks have joined, so every request is decided; or the order no longer counts.
  for (auto& [order, tensors] : ordered_) {
    std::move(tensors.begin(), tensors.end(), std::back_inserter(ready_));
  }
  ordered_.clear();
  unreleased_.clear();

  ready_.push_back(std::move(ready));
}

void Coordinator::enqueue(ReadyTensor tensor) {
  if (options_.deterministic) {
    std::vector<ReadyTensor> one;
    one.push_back(std::move(tensor));
    enqueue(std::move(one));
  } else {
    ready_.push_back(std::move(tensor));
  }
}

void Coordinator::enqueue(std::vector<ReadyTensor> tensors) {
  std::optional<Order> first;
  for (const auto& ready : tensors) {
    const auto node = order_of_.extract(key_of(ready.request()));
    if (node.empty()) continue;
    if (!first || node.mapped() < *first) {
      if (first) unreleased_.erase(*first);
      first = node.mapped();
    } else {
      unreleased_.erase(node.mapped());
    }
  }

  if (first && closing_.empty() && unreleased_.contains(*first)) {
    ordered_.emplace(*first, std::move(tensors));
  } else {
    std::move(tensors.begin(), tensors.end(), std::back_inserter(ready_));
  }
}

void Coordinator::release_ordered(TimePoint now) {
  while (!ordered_.empty()) {
    const auto first = ordered_.begin();
    const bool is_its_turn = first->first == *unreleased_.begin() || !closing_.empty();
    if (!is_its_turn && first->second.front().since + kOrderTimeout > now) return;
    unreleased_.erase(first->first);
    std::move(first->second.begin(), first->second.end(), std::back_inserter(ready_));
    ordered_.erase(first);
  }
}

void Coordinator::tune(const Parameters& parameters) {
  options_.fusion_threshold = parameters.fusion_threshold;
  options_.cycle_time = parameters.cycle_time;
  options_.hierarchical_allreduce = parameters.hierarchical_allreduce;
  options_.hierarchical_allgather = parameters.hierarchical_allgather;
}

Response Coordinator::response_of(std::vector<ReadyTensor> batch) {
  Response response;
  ReadyTensor& first = batch.front();
  const Request& request = first.request();
  response.kind = request.kind;
  response.process_set = request.process_set;
  response.error = std::move(first.error);
  response.joined = std::move(first.joined);
  response.last_joined = first.last_joined;
  response.hierarchical = (request.kind == Kind::allreduce && options_.hierarchical_allreduce) ||
                          (request.kind == Kind::allgather && options_.hierarchical_allgather);
  response.link_speed = options_.link_speed;

  if (response.error.ok() && request.kind == Kind::add_process_set) {
    response.error = sets_.check_add(request);
    if (response.error.ok()) response.new_set = sets_.next();
  } else if (response.error.ok() && request.kind == Kind::remove_process_set) {
    response.error = sets_.check_remove(request);
  }

  response.tensors.reserve(batch.size());
  std::vector<CacheId> ids;
  for (auto& ready : batch) {
    if (decided_ids_.contains(ready.tensor->cache_id)) {
      ids.push_back(ready.tensor->cache_id);
    } else {
      forget_decided(ready.request());
    }
    response.tensors.push_back(std::move(ready.tensor));
  }

  decided_ids_.subtract(IntervalSet::of_values(std::move(ids)));
  return response;
}

// After an error a name may be decided again while its first response still waits: the key to erase
// is the one that points into this request.
void Coordinator::forget_decided(const Request& request) {
  const char* const name = request.name.data();
  const auto [begin, end] = decided_.equal_range(view_of(request));
  const auto own = std::find_if(
      begin, end, [name](const TensorKeyView& key) { return key.name.data() == name; });
  if (own != end) decided_.erase(own);
}

std::optional<Response> Coordinator::next(TimePoint now, int under_way) {
  if (next_group_look_ <= now) find_mismatched_groups(now);
  release_ordered(now);
  if (ready_.empty()) return std::nullopt;
  const bool waited = now - ready_.front().since >= options_.cycle_time;
  if (under_way >= (waited ? kMaxAhead : kEnoughAhead)) return std::nullopt;
  return response_of(take_batch(ready_, options_.fusion_threshold,
                                options_.deterministic ? Fusion::groups_only : Fusion::look_ahead));
}

TimePoint Coordinator::next_at(int under_way) const {
  TimePoint next = table_.empty() ? kNever : next_group_look_;
  if (!ordered_.empty()) {
    next = std::min(next, ordered_.begin()->second.front().since + kOrderTimeout);
  }
  if (ready_.empty() || under_way >= kMaxAhead) return next;
  return std::min(next, ready_.front().since + options_.cycle_time);
}

void Coordinator::applied(const Response& response, const std::vector<EvictedTensor>& evicted) {
  table_.evicted(evicted);
  for (const auto& [id, tensor] : evicted) {
    if (!decided_ids_.contains(id)) continue;
    decided_ids_.subtract(IntervalSet::of(id));
    decided_.insert(view_of(tensor->request));
  }
  if (response.kind == Kind::join) table_.join_ended();
  if (response.kind == Kind::remove_process_set && response.error.ok()) {
    forget_set(response.process_set);
  }
}

void Coordinator::forget_set(int process_set) {
  const auto of_the_set = [process_set](const ReadyTensor& ready) {
    return negotiated_in(ready.request()) == process_set;
  };

  table_.set_removed(process_set);
  std::erase_if(decided_, [&](const TensorKeyView& key) { return key.process_set == process_set; });

  groups_.set_removed(process_set);
  std::erase_if(ready_, of_the_set);
  for (auto& [order, tensors] : ordered_) std::erase_if(tensors, of_the_set);
  std::erase_if(ordered_, [this](const auto& item) {
    if (item.second.empty()) unreleased_.erase(item.first);
    return item.second.empty();
  });

  std::erase_if(order_of_, [&](const auto& item) {
    if (item.first.process_set != process_set) return false;
    unreleased_.erase(item.second);
    return true;
  });
}

}  // namespace hvd::runtime
