#include "runtime/negotiation/gatherer.h"

#include <algorithm>
#include <utility>

namespace hvd::runtime {

Gatherer::Gatherer(const ResponseCache& cache, const ProcessSets& sets, const ControlTree& tree,
                   int rank, Duration hold)
    : cache_(cache), hold_(hold), table_(cache, sets, tree.subtree(rank)) {}

Status Gatherer::take(int from, RequestList message, TimePoint now) {
  last_requests_.heard(from, message, cache_, now);

  for (const auto& known : message.cached) {
    MessageTable::Touched touched;
    HVD_RETURN_IF_ERROR(table_.add(known, now, touched));
    forward_touched(touched, now);
  }
  for (const auto& asked : message.full) {
    MessageTable::Touched touched;
    HVD_RETURN_IF_ERROR(table_.add(asked, now, touched));
    forward_touched(touched, now);
  }

  pending_.joined.unite(message.joined);
  if (!message.joined.empty() && !forward_immediately_) {
    // The requests that a rank made before it joined must reach the parent before the join does.
    std::vector<TensorKey> concerned;
    for (const auto& [key, row] : table_.rows()) {
      if (row.asked.intersects(message.joined)) concerned.push_back(key);
    }
    HVD_RETURN_IF_ERROR(table_.join(message.joined));
    for (const auto& [key, row] : table_.rows()) {
      if (table_.complete(key, row)) concerned.push_back(key);
    }
    for (const auto& key : concerned) {
      if (table_.find(key) != nullptr) forward(key);
    }
  }

  pending_.joins_soon = pending_.joins_soon || message.joins_soon;
  pending_.in_shutdown = pending_.in_shutdown || message.in_shutdown;
  pending_.closing.unite(message.closing);
  pending_.left.unite(message.left);
  pending_.last_requests.insert(pending_.last_requests.end(), message.last_requests.begin(),
                                message.last_requests.end());
  return {};
}

// Each part of a message is handled before the next is added, as in the coordinator.
void Gatherer::forward_touched(const MessageTable::Touched& touched, TimePoint now) {
  for (const auto& [ranks, ids] : touched.complete) known_[ranks].unite(ids);
  if (!table_.empty()) next_look_ = std::min(next_look_, now + hold_);
  for (const auto& key : touched.rows) {
    const auto& row = *table_.find(key);
    if (forward_immediately_ || is_partly_forwarded(row) || table_.complete(key, row)) {
      forward(key);
    }
  }
}

void Gatherer::forward(const TensorKey& key) {
  auto& row = *table_.find(key);
  const auto fresh = row.asked.difference(row.forwarded);
  if (auto by_id = row.by_id.intersection(fresh); !by_id.empty()) {
    known_[std::move(by_id)].insert(*row.id);
  }

  for (const auto& variant : row.whole) {
    FullRequest asked{variant.ranks.intersection(fresh), variant.request, {}};
    if (asked.ranks.empty()) continue;
    if (is_ragged(variant.request)) {
      asked.ranks.for_each([&](RankSet::Value rank) {
        asked.first_extents.push_back(variant.first_extents.at(static_cast<int>(rank)));
      });
    }
    pending_.full.push_back(std::move(asked));
  }

  row.forwarded.unite(fresh);
  // Once a rank has closed, an error may answer a tensor whose request is still on its way up, and
  // the next request under its name is a new one: so forwarded requests are not remembered.
  if (forward_immediately_ || table_.complete(key, row)) (void)table_.take(key);
}

void Gatherer::forward_immediately() {
  forward_immediately_ = true;
  table_.only_rows();
  std::vector<TensorKey> all;
  for (const auto& [key, row] : table_.rows()) all.push_back(key);
  for (const auto& key : all) forward(key);
}

void Gatherer::forward_late_rows(TimePoint now) {
  std::vector<TensorKey> late;
  bool in_part = false;
  for (const auto& [key, row] : table_.rows()) {
    in_part = in_part || is_partly_forwarded(row);
    if (!is_partly_forwarded(row) && row.since + hold_ <= now) late.push_back(key);
  }

  if (!late.empty() || (in_part && reported_ + hold_ <= now)) {
    for (const auto& key : late) forward(key);
    const auto words = last_requests_.tell(now);
    pending_.last_requests.insert(pending_.last_requests.end(), words.begin(), words.end());
    reported_ = now;
  }

  next_look_ = kNever;
  for (const auto& [key, row] : table_.rows()) {
    next_look_ =
        std::min(next_look_, is_partly_forwarded(row) ? reported_ + hold_ : row.since + hold_);
  }
}

RequestList Gatherer::collect(TimePoint now) {
  if (next_look_ <= now) forward_late_rows(now);
  for (auto& [ranks, ids] : known_) pending_.cached.push_back({ranks, std::move(ids)});
  known_.clear();
  return std::exchange(pending_, {});
}

}  // namespace hvd::runtime
