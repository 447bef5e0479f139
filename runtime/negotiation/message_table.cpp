#include "runtime/negotiation/message_table.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::runtime {

const RankSet& MessageTable::members_in_scope(int process_set) const {
  const auto known = members_in_scope_.find(process_set);
  if (known != members_in_scope_.end()) return known->second;
  return members_in_scope_.emplace(process_set, sets_.members(process_set).intersection(scope_))
      .first->second;
}

Status MessageTable::add_row(const TensorKey& key, const RankSet& ranks, TimePoint now, Row** row) {
  if (!members_in_scope(key.process_set).contains_all(ranks)) {
    return {Code::permission_denied,
            cat("\"", key.name, "\" was asked for by rank ",
                ranks.difference(members_in_scope(key.process_set)).front(),
                ", which cannot ask for it here")};
  }
  if (joined_.intersects(ranks)) {
    return {Code::failed_precondition, cat("rank ", joined_.intersection(ranks).front(),
                                           " asked for \"", key.name, "\" after it had joined")};
  }
  const auto [found, is_new] = rows_.try_emplace(key);
  *row = &found->second;
  if (is_new) (*row)->since = now;
  if ((*row)->asked.intersects(ranks)) {
    return {Code::already_exists, cat("rank ", (*row)->asked.intersection(ranks).front(),
                                      " asked for \"", key.name, "\" twice")};
  }
  (*row)->asked.unite(ranks);
  return {};
}

Status MessageTable::add(const Known& known, TimePoint now, std::vector<TensorKey>& touched) {
  for (const auto& stretch : known.ids.intervals()) {
    if (stretch.end > cache_.next_id()) {
      return {Code::data_loss, cat("cache id ", stretch.end - 1, ", which was never given out")};
    }
    for (CacheId id = stretch.begin; id < stretch.end; ++id) {
      const auto tensor = cache_.get(id);
      if (tensor == nullptr) continue;
      const auto key = key_of(tensor->request);
      Row* row = nullptr;
      HVD_RETURN_IF_ERROR(add_row(key, known.ranks, now, &row));
      row->id = id;
      row->by_id.unite(known.ranks);
      touched.push_back(key);
    }
  }
  return {};
}

Status MessageTable::add(const Asked& asked, TimePoint now, std::vector<TensorKey>& touched) {
  const auto key = key_of(asked.request);
  if (!sets_.contains(key.process_set)) {
    if (sets_.was_removed(key.process_set)) return {};
    return {Code::not_found,
            cat("\"", key.name, "\" in process set ", key.process_set, ", which there never was")};
  }
  const bool ragged = is_ragged(asked.request);
  if (asked.first_extents.size() != (ragged ? asked.ranks.size() : 0)) {
    return {Code::data_loss, cat("\"", key.name, "\" with ", asked.first_extents.size(),
                                 " first extents of ", asked.ranks.size(), " ranks")};
  }
  Row* row = nullptr;
  HVD_RETURN_IF_ERROR(add_row(key, asked.ranks, now, &row));
  auto variant = std::find_if(row->whole.begin(), row->whole.end(),
                              [&](const Variant& v) { return v.request == asked.request; });
  if (variant == row->whole.end()) {
    row->whole.push_back({asked.request, {}, {}});
    variant = std::prev(row->whole.end());
  }
  variant->ranks.unite(asked.ranks);
  if (ragged) {
    auto extent = asked.first_extents.begin();
    asked.ranks.for_each([&](RankSet::Value rank) {
      variant->first_extents.emplace(static_cast<int>(rank), *extent++);
    });
  }
  touched.push_back(key);
  return {};
}

bool MessageTable::complete(const TensorKey& key, const Row& row) const {
  const auto& wanted = members_in_scope(key.process_set);
  if (row.asked.size() == wanted.size()) return true;
  return !joined_.empty() && missing(key, row).empty();
}

RankSet MessageTable::missing(const TensorKey& key, const Row& row) const {
  auto ranks = members_in_scope(key.process_set).difference(row.asked);
  ranks.subtract(joined_);
  return ranks;
}

MessageTable::Row* MessageTable::find(const TensorKey& key) {
  const auto found = rows_.find(key);
  return found == rows_.end() ? nullptr : &found->second;
}

MessageTable::Row MessageTable::take(const TensorKey& key) {
  return std::move(rows_.extract(key).mapped());
}

Status MessageTable::join(const RankSet& ranks) {
  if (!scope_.contains_all(ranks))
    return {Code::permission_denied, "ranks joined that are not here"};
  if (joined_.intersects(ranks)) {
    return {Code::already_exists,
            cat("rank ", joined_.intersection(ranks).front(), " joined twice")};
  }
  joined_.unite(ranks);
  return {};
}

void MessageTable::died(const std::vector<Departed>& ids) {
  for (const auto& [id, key] : ids) {
    const auto found = rows_.find(key);
    if (found == rows_.end() || found->second.id != id) continue;
    auto& row = found->second;
    row.asked.subtract(row.by_id);
    row.passed.subtract(row.by_id);
    row.by_id = {};
    row.id.reset();
    if (row.asked.empty()) rows_.erase(found);
  }
}

void MessageTable::set_removed(int process_set) {
  members_in_scope_.erase(process_set);
  std::erase_if(rows_, [&](const auto& row) { return row.first.process_set == process_set; });
}

}  // namespace hvd::runtime
