#include "runtime/negotiation/negotiator.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// Whether the cached tensor is the same as the response's, apart from the extents of joined ranks.
bool says_the_same(const ResponseTensor& cached, const ResponseTensor& tensor,
                   const std::vector<int>& joined, const RankSet& members) {
  if (cached.request != tensor.request) return false;
  if (joined.empty()) return cached.first_extents == tensor.first_extents;
  if (cached.first_extents.size() != tensor.first_extents.size()) return false;
  if (cached.first_extents.empty()) return true;
  if (cached.first_extents.size() != members.size()) return false;
  const auto gone = RankSet::of_ranks(joined);
  std::size_t position = 0;
  bool same = true;
  members.for_each([&](RankSet::Value rank) {
    if (!gone.contains(rank) && cached.first_extents[position] != tensor.first_extents[position]) {
      same = false;
    }
    ++position;
  });
  return same;
}

// The tensor with empty extents for the ranks that have joined.
SharedTensor without(const std::vector<int>& joined, SharedTensor tensor, const RankSet& members) {
  if (joined.empty() || tensor->first_extents.size() != members.size()) return tensor;
  auto rest = std::make_shared<ResponseTensor>(*tensor);
  rest->cache_id = ResponseTensor::kNotCached;
  const auto gone = RankSet::of_ranks(joined);
  std::size_t position = 0;
  members.for_each([&](RankSet::Value rank) {
    if (gone.contains(rank)) rest->first_extents[position] = 0;
    ++position;
  });
  return rest;
}

}  // namespace

std::string Negotiator::missing_text(TimePoint now) const {
  if (!coordinator_) return {};
  return stalls_.missing_text(coordinator_->table(), coordinator_->last_requests(), now);
}

Duration hold_time(const Config& config) {
  const Duration longest = std::chrono::seconds(1);
  if (config.stall_warning == std::chrono::milliseconds::zero()) return longest;
  return std::min<Duration>(longest, config.stall_warning / 8);
}

Negotiator::Negotiator(const std::shared_ptr<const ControlTree>& tree, int rank,
                       const Config& config)
    : Negotiator(tree, rank, config, ProcessSets(tree->size())) {}

Negotiator::Negotiator(std::shared_ptr<const ControlTree> tree, int rank, const Config& config,
                       ProcessSets sets)
    : tree_(std::move(tree)),
      rank_(rank),
      cache_(config.cache_capacity),
      sets_(std::move(sets)),
      lanes_(tree_->size()),
      stalls_(*tree_, config.stall_warning, config.stall_shutdown) {
  if (is_root()) {
    const CoordinatorOptions options{config.fusion_threshold, config.cycle_time,
                                     config.deterministic,
                                     config.hierarchical_allreduce.value_or(false),
                                     config.hierarchical_allgather.value_or(false)};
    coordinator_.emplace(*tree_, cache_, sets_, options);
  } else {
    gatherer_.emplace(cache_, sets_, *tree_, rank_, hold_time(config));
  }
}

Status Negotiator::take(int from, RequestList message, TimePoint now) {
  left_.unite(message.left);
  return coordinator_ ? coordinator_->take(from, message, now)
                      : gatherer_->take(from, std::move(message), now);
}

std::optional<CacheId> Negotiator::known_id(const Request& request) const {
  if (!caching_) return std::nullopt;
  const auto& members = sets_.members(negotiated_in(request));
  return cache_.find(request, is_ragged(request) ? position_in(members, rank_) : 0);
}

// The requests that this rank is about to send.
struct Negotiator::PendingRequests {
  std::vector<CacheId> known;
  RequestList message;  // all requests that have no id
};

Status Negotiator::submit(const std::vector<SubmittedRequest>& all, TimePoint now) {
  PendingRequests pending;
  pending.known.reserve(all.size());
  for (const auto& request : all) {
    if (request.cached == nullptr) {
      add_request(std::move(*request.full), pending);
    } else if (caching_ && cache_.has(*request.cached)) {
      if (coordinator_) coordinator_->note_order(request.cached->request);
      pending.known.push_back(request.cached->cache_id);
    } else {
      add_request(request.cached->request, pending);
    }
  }
  return submit_pending(std::move(pending), now);
}

Status Negotiator::submit(std::vector<Request> requests, TimePoint now) {
  PendingRequests pending;
  for (auto& request : requests) add_request(std::move(request), pending);
  return submit_pending(std::move(pending), now);
}

void Negotiator::add_request(Request request, PendingRequests& pending) {
  const auto self = RankSet::of(static_cast<RankSet::Value>(rank_));
  if (request.kind == Kind::join) {
    pending.message.joined = self;
    return;
  }

  // The process set was removed meanwhile: the executor will fail the entry.
  if (!sets_.contains(negotiated_in(request))) return;

  if (coordinator_) coordinator_->note_order(request);
  if (const auto id = known_id(request)) {
    pending.known.push_back(*id);
    return;
  }

  FullRequest asked{self, std::move(request), {}};
  if (is_ragged(asked.request)) {
    asked.first_extents.push_back(std::exchange(asked.request.shape.front(), 0));
  }
  pending.message.full.push_back(std::move(asked));
}

Status Negotiator::submit_pending(PendingRequests pending, TimePoint now) {
  stats_.hits += pending.known.size();
  stats_.misses += pending.message.full.size();
  if (!pending.known.empty()) {
    auto ids = IntervalSet::of_values(std::move(pending.known));
    asked_by_id_.unite(ids);
    const auto self = RankSet::of(static_cast<RankSet::Value>(rank_));
    pending.message.cached.push_back({self, std::move(ids)});
  }
  if (!pending.message.joined.empty()) put_off_join(pending.message);
  return take(rank_, std::move(pending.message), now);
}

// A request by an id that leaves the caches is made again. So this rank joins or closes only once
// no id leaves them any more; rank 0, whose cache is the first to change, at once.
void Negotiator::put_off_join(RequestList& message) {
  if (asked_by_id_.empty() || told_that_ids_stay_) return;
  message.joins_soon = true;
  if (is_root()) return;
  message.joined = {};
  joins_when_told_ = true;
}

Status Negotiator::close(TimePoint now) {
  RequestList message;
  if (is_root() || told_to_forward_) {
    message.closing = RankSet::of(static_cast<RankSet::Value>(rank_));
  } else {
    message.in_shutdown = closes_when_told_ = true;
  }
  return take(rank_, std::move(message), now);
}

Status Negotiator::leave(TimePoint now) {
  joins_when_told_ = closes_when_told_ = false;
  RequestList message;
  message.left = RankSet::of(static_cast<RankSet::Value>(rank_));
  return take(rank_, std::move(message), now);
}

Status Negotiator::from_child(int child, RequestList message, TimePoint now) {
  const auto& below = tree_->subtree(child);
  const auto is_own = [&below](const auto& part) {
    return !part.ranks.empty() && below.contains_all(part.ranks);
  };
  const bool right = below.contains_all(message.joined) && below.contains_all(message.closing) &&
                     below.contains_all(message.left) &&
                     std::all_of(message.cached.begin(), message.cached.end(), is_own) &&
                     std::all_of(message.full.begin(), message.full.end(), is_own);
  if (!right) return {Code::permission_denied, "it sent requests of ranks that are not below it"};
  return take(child, std::move(message), now);
}

Status Negotiator::from_parent(ResponseList message, TimePoint now) {
  for (auto& wire : message.responses) HVD_RETURN_IF_ERROR(apply(std::move(wire), now));
  if (message.keeps_ids) {
    told_that_ids_stay_ = output_.down.keeps_ids = true;
    if (std::exchange(joins_when_told_, false)) {
      RequestList joins;
      joins.joined = RankSet::of(static_cast<RankSet::Value>(rank_));
      HVD_RETURN_IF_ERROR(take(rank_, std::move(joins), now));
    }
  }
  if (message.forward_immediately) {
    gatherer_->forward_immediately();
    told_to_forward_ = output_.down.forward_immediately = true;
    if (std::exchange(closes_when_told_, false)) HVD_RETURN_IF_ERROR(close(now));
  }
  if (message.goodbye) output_.goodbye = output_.down.goodbye = true;
  return {};
}

WireResponse Negotiator::wire_response_of(const Response& response) const {
  const bool caching = may_cache_ && !(told_that_ids_stay_ && cache_.is_full_for(response.tensors));
  WireResponse wire{
      response.kind,    response.process_set, {}, response.joined,       response.last_joined,
      response.new_set, response.error,       {}, response.hierarchical, response.link_speed,
      caching,          may_give_lanes_};
  wire.tensors.reserve(response.tensors.size());

  for (const auto& tensor : response.tensors) {
    if (caching && cache_.has(*tensor)) {
      wire.tensors.push_back({tensor->cache_id, nullptr});
      continue;
    }
    CacheId id = 0;
    const auto key = view_of(tensor->request);
    const auto cached = cache_.get(key, &id);
    if (caching && cached != nullptr &&
        says_the_same(*cached, *tensor, response.joined, sets_.members(key.process_set))) {
      wire.tensors.push_back({id, nullptr});
    } else {
      wire.tensors.push_back({std::nullopt, tensor});
    }
  }

  return wire;
}

// Applies a response to the common state. All ranks do this with the same responses in the same
// order.
Status Negotiator::apply(WireResponse wire, TimePoint now) {
  Response response{wire.kind,   wire.process_set,  {},
                    wire.joined, wire.last_joined,  wire.new_set,
                    wire.error,  wire.hierarchical, wire.link_speed};
  caching_ = wire.caching;

  std::vector<SharedTensor> tensors;
  IntervalSet answered;
  HVD_RETURN_IF_ERROR(look_up(wire, tensors, answered));
  const auto members = ranks_that_run(response, tensors);
  HVD_RETURN_IF_ERROR(members.status());
  const bool is_ours = members->contains(static_cast<RankSet::Value>(rank_));
  asked_by_id_.subtract(answered);

  std::vector<EvictedTensor> evicted;
  if (response.error.ok()) {
    update_cache(wire, tensors, evicted);
    response.lanes = lanes_.give(wire, tensors, members->size());
    HVD_RETURN_IF_ERROR(update_sets(response, tensors, evicted));
  }
  note_applied(response, tensors, answered, evicted, wire.settled);

  const IntervalSet settled = wire.settled;
  output_.down.responses.push_back(std::move(wire));
  response.number = ++applied_;
  if (is_ours) {
    response.tensors.reserve(tensors.size());
    for (auto& tensor : tensors) {
      response.tensors.push_back(without(response.joined, std::move(tensor), *members));
    }
    output_.run.push_back(std::move(response));
  }
  return ask_again(evicted, settled, now);
}

Status Negotiator::look_up(const WireResponse& wire, std::vector<SharedTensor>& tensors,
                           IntervalSet& answered) const {
  tensors.reserve(wire.tensors.size());
  std::vector<CacheId> known;
  for (const auto& tensor : wire.tensors) {
    tensors.push_back(tensor.id ? cache_.get(*tensor.id) : tensor.whole);
    if (tensors.back() == nullptr) {
      return {Code::data_loss, cat("a response with unknown cache id ", *tensor.id)};
    }
    CacheId id = tensor.id.value_or(0);
    if (tensor.id || cache_.get(view_of(tensors.back()->request), &id)) known.push_back(id);
  }
  answered = IntervalSet::of_values(std::move(known));
  return {};
}

Result<RankSet> Negotiator::ranks_that_run(const Response& response,
                                           const std::vector<SharedTensor>& tensors) const {
  const bool concerns_all = response.kind == Kind::add_process_set ||
                            response.kind == Kind::remove_process_set ||
                            response.kind == Kind::join;
  const int negotiated = concerns_all ? kGlobalSet : response.process_set;
  if (!sets_.contains(negotiated)) {
    return Status(Code::data_loss, cat("a response for unknown process set ", negotiated));
  }
  // A response to a send_recv in error may answer requests that name other ranks.
  if (response.kind != Kind::send_recv || !response.error.ok()) return sets_.members(negotiated);

  auto two = RankSet::of_ranks(tensors.front()->request.ranks);
  if (two.size() == 2) return two;
  return Status(Code::data_loss, "a send_recv that is not between two ranks");
}

void Negotiator::update_cache(const WireResponse& wire, const std::vector<SharedTensor>& tensors,
                              std::vector<EvictedTensor>& evicted) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (const auto id = wire.tensors[i].id) {
      cache_.used(*id);
    } else if (wire.joined.empty() && wire.caching) {
      cache_.agreed(tensors[i], evicted);
    }
  }
}

Status Negotiator::update_sets(const Response& response, const std::vector<SharedTensor>& tensors,
                               std::vector<EvictedTensor>& evicted) {
  if (response.kind == Kind::add_process_set) {
    if (response.new_set != sets_.next()) {
      return {Code::data_loss, cat("a new process set with number ", response.new_set)};
    }
    const Request& added = tensors.front()->request;
    sets_.add(RankSet::of_ranks(added.ranks), added.by_members);
  } else if (response.kind == Kind::remove_process_set) {
    sets_.remove(response.process_set);
    cache_.set_removed(response.process_set, evicted);
    lanes_.set_removed(response.process_set);
  }
  return {};
}

void Negotiator::note_applied(const Response& response, const std::vector<SharedTensor>& tensors,
                              const IntervalSet& answered,
                              const std::vector<EvictedTensor>& evicted, IntervalSet& settled) {
  if (coordinator_) {
    for (const auto& [id, tensor] : evicted) {
      if (coordinator_->is_decided(*tensor)) settled.insert(id);
    }
    coordinator_->applied(response, evicted);
    return;
  }
  gatherer_->answered(answered, tensors);
  gatherer_->evicted(evicted);
  if (response.kind == Kind::join) gatherer_->join_ended();
  if (response.kind == Kind::remove_process_set && response.error.ok()) {
    gatherer_->set_removed(response.process_set);
  }
}

Status Negotiator::ask_again(const std::vector<EvictedTensor>& evicted, const IntervalSet& settled,
                             TimePoint now) {
  std::vector<Request> requests;
  for (const auto& [id, tensor] : evicted) {
    if (!asked_by_id_.contains(id)) continue;
    asked_by_id_.subtract(IntervalSet::of(id));
    if (settled.contains(id) || !sets_.contains(tensor->request.process_set)) continue;
    requests.push_back(tensor->request);
    if (!is_ragged(tensor->request)) continue;
    const auto position = position_in(sets_.members(tensor->request.process_set), rank_);
    requests.back().shape.front() = tensor->first_extents[static_cast<std::size_t>(position)];
  }
  return requests.empty() ? Status() : submit(std::move(requests), now);
}

void Negotiator::tune(const Parameters& parameters) {
  coordinator_->tune(parameters);
  may_cache_ = parameters.cache;
}

Negotiator::Output Negotiator::work(TimePoint now, int under_way) {
  if (gatherer_) {
    output_.up = gatherer_->collect(now);
    return std::exchange(output_, {});
  }

  if (coordinator_->must_keep_ids() && !told_that_ids_stay_) {
    told_that_ids_stay_ = output_.down.keeps_ids = true;
  }
  if (coordinator_->any_in_shutdown() && !told_to_forward_) {
    told_to_forward_ = output_.down.forward_immediately = true;
  }

  while (auto response = coordinator_->next(now, under_way)) {
    const auto runs = ranks_that_run(*response, response->tensors);
    if (response->error.ok() && runs.ok() && runs->contains(0)) ++under_way;
    // The coordinator's own responses are valid.
    if (const Status applied = apply(wire_response_of(*response), now); !applied.ok()) {
      output_.stalls.failure = applied;
      break;
    }
  }

  if (coordinator_->all_left()) output_.goodbye = output_.down.goodbye = true;

  auto stalls = stalls_.look(coordinator_->table(), coordinator_->last_requests(), now);
  if (output_.stalls.failure.ok()) output_.stalls = std::move(stalls);
  return std::exchange(output_, {});
}

TimePoint Negotiator::next_work(TimePoint now, int under_way) {
  if (gatherer_) return gatherer_->next_collect();
  return std::min(coordinator_->next_at(under_way), stalls_.next_look(coordinator_->table(), now));
}

}  // namespace hvd::runtime
