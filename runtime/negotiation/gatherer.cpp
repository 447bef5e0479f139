#include "runtime/negotiation/gatherer.h"

#include <algorithm>
#include <utility>

namespace hvd::runtime {

Gatherer::Gatherer(const ResponseCache& cache, const ProcessSets& sets, const ControlTree& tree,
                   int rank, Duration hold)
    : cache_(cache), hold_(hold), table_(cache, sets, tree.subtree(rank)) {}

Status Gatherer::take(int from, Upward message, TimePoint now) {
  last_words_.heard(from, message, cache_, now);
  for (const auto& known : message.known) {
    MessageTable::Touched touched;
    HVD_RETURN_IF_ERROR(table_.add(known, now, touched));
    pass_touched(touched, now);
  }
  for (const auto& asked : message.asked) {
    MessageTable::Touched touched;
    HVD_RETURN_IF_ERROR(table_.add(asked, now, touched));
    pass_touched(touched, now);
  }
  pending_.joined.unite(message.joined);
  if (!message.joined.empty() && !at_once_) {
    // Nobody may join before what it asked for is known.
    std::vector<TensorKey> concerned;
    for (const auto& [key, row] : table_.rows()) {
      if (row.asked.intersects(message.joined)) concerned.push_back(key);
    }
    HVD_RETURN_IF_ERROR(table_.join(message.joined));
    for (const auto& [key, row] : table_.rows()) {
      if (table_.complete(key, row)) concerned.push_back(key);
    }
    for (const auto& key : concerned) {
      if (table_.find(key) != nullptr) pass(key);
    }
  }
  pending_.left.unite(message.left);
  pending_.last_words.insert(pending_.last_words.end(), message.last_words.begin(),
                             message.last_words.end());
  return {};
}

// One part of a message after the other, as the coordinator does.
void Gatherer::pass_touched(const MessageTable::Touched& touched, TimePoint now) {
  for (const auto& [ranks, ids] : touched.complete) known_[ranks].unite(ids);
  if (!table_.empty()) next_look_ = std::min(next_look_, now + hold_);
  for (const auto& key : touched.rows) {
    const auto& row = *table_.find(key);
    if (at_once_ || is_passed_in_part(row) || table_.complete(key, row)) {
      pass(key);
    }
  }
}

void Gatherer::pass(const TensorKey& key) {
  auto& row = *table_.find(key);
  const auto fresh = row.asked.difference(row.passed);
  if (auto by_id = row.by_id.intersection(fresh); !by_id.empty()) {
    known_[std::move(by_id)].insert(*row.id);
  }
  for (const auto& variant : row.whole) {
    Asked asked{variant.ranks.intersection(fresh), variant.request, {}};
    if (asked.ranks.empty()) continue;
    if (is_ragged(variant.request)) {
      asked.ranks.for_each([&](RankSet::Value rank) {
        asked.first_extents.push_back(variant.first_extents.at(static_cast<int>(rank)));
      });
    }
    pending_.asked.push_back(std::move(asked));
  }
  row.passed.unite(fresh);
  // Once somebody has left, an error may answer a tensor that is still on its way up, and what
  // comes next under its name is another one: so nothing is remembered of what was passed on.
  if (at_once_ || table_.complete(key, row)) (void)table_.take(key);
}

void Gatherer::pass_at_once() {
  at_once_ = true;
  table_.only_rows();
  std::vector<TensorKey> all;
  for (const auto& [key, row] : table_.rows()) all.push_back(key);
  for (const auto& key : all) pass(key);
}

void Gatherer::look_for_late_ones(TimePoint now) {
  std::vector<TensorKey> late;
  bool in_part = false;
  for (const auto& [key, row] : table_.rows()) {
    in_part = in_part || is_passed_in_part(row);
    if (!is_passed_in_part(row) && row.since + hold_ <= now) late.push_back(key);
  }
  if (!late.empty() || (in_part && reported_ + hold_ <= now)) {
    for (const auto& key : late) pass(key);
    const auto words = last_words_.tell(now);
    pending_.last_words.insert(pending_.last_words.end(), words.begin(), words.end());
    reported_ = now;
  }
  next_look_ = kNever;
  for (const auto& [key, row] : table_.rows()) {
    next_look_ =
        std::min(next_look_, is_passed_in_part(row) ? reported_ + hold_ : row.since + hold_);
  }
}

Upward Gatherer::collect(TimePoint now) {
  if (next_look_ <= now) look_for_late_ones(now);
  for (auto& [ranks, ids] : known_) pending_.known.push_back({ranks, std::move(ids)});
  known_.clear();
  return std::exchange(pending_, {});
}

}  // namespace hvd::runtime
