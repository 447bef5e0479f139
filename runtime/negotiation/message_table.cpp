#include "runtime/negotiation/message_table.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// Requests within this time form one piece: only the search for late rows looks at their times.
constexpr std::chrono::milliseconds kSameTime{1};

// The ranks that it names request it, and no others do.
bool is_among_named_ranks(const MessageTable::Row& row) {
  return !row.whole.empty() && std::all_of(row.whole.begin(), row.whole.end(), [](const auto& one) {
    return is_among_named_ranks(one.request);
  });
}

}  // namespace

const RankSet& MessageTable::members_in_scope(int process_set) const {
  const auto known = members_in_scope_.find(process_set);
  if (known != members_in_scope_.end()) return known->second;
  return members_in_scope_.emplace(process_set, sets_.members(process_set).intersection(scope_))
      .first->second;
}

Status MessageTable::check_may_ask(std::string_view name, int process_set,
                                   const RankSet& ranks) const {
  if (!members_in_scope(process_set).contains_all(ranks)) {
    return {Code::permission_denied, cat("\"", name, "\" was requested by rank ",
                                         ranks.difference(members_in_scope(process_set)).front(),
                                         ", which cannot request it here")};
  }
  if (joined_.intersects(ranks)) {
    return {Code::failed_precondition, cat("rank ", joined_.intersection(ranks).front(),
                                           " asked for \"", name, "\" after it had joined")};
  }
  return {};
}

Status MessageTable::add_row(const TensorKey& key, const RankSet& ranks, TimePoint now, Row** row) {
  HVD_RETURN_IF_ERROR(check_may_ask(key.name, key.process_set, ranks));
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

Status MessageTable::add(const CachedRequests& known, TimePoint now, Touched& touched) {
  if (!known.ids.empty() && known.ids.back() >= cache_.next_id()) {
    return {Code::data_loss, cat("unknown cache id ", known.ids.back())};
  }

  if (pieces_.size() > kMaxPieces) expand();
  const bool together = rows_.empty() && joined_.empty() && !only_rows_;

  for (const auto& [process_set, alive] : cache_.ids()) {
    const auto ids = alive.intersection(known.ids);
    if (ids.empty()) continue;
    if (together) {
      HVD_RETURN_IF_ERROR(add_ids(process_set, ids, known.ranks, now, touched));
      continue;
    }
    for (const auto& interval : ids.intervals()) {
      for (CacheId id = interval.begin; id < interval.end; ++id) {
        auto key = key_of(cache_.get(id)->request);
        Row* row = nullptr;
        HVD_RETURN_IF_ERROR(add_row(key, known.ranks, now, &row));
        row->id = id;
        row->by_id.unite(known.ranks);
        touched.rows.push_back(std::move(key));
      }
    }
  }
  return {};
}

Status MessageTable::add_ids(int process_set, const IntervalSet& ids, const RankSet& ranks,
                             TimePoint now, Touched& touched) {
  const auto name = [&](CacheId id) { return cache_.get(id)->request.name; };
  HVD_RETURN_IF_ERROR(check_may_ask(name(ids.front()), process_set, ranks));

  IntervalSet first_asked = ids;
  std::vector<CachedPiece> pieces;
  for (auto& piece : pieces_) {
    auto again = piece.ids.intersection(ids);
    if (again.empty()) continue;
    if (piece.ranks.intersects(ranks)) {
      return {Code::already_exists, cat("rank ", piece.ranks.intersection(ranks).front(),
                                        " asked for \"", name(again.front()), "\" twice")};
    }
    piece.ids.subtract(again);
    first_asked.subtract(again);
    pieces.push_back({process_set, piece.since, piece.ranks, std::move(again)});
    pieces.back().ranks.unite(ranks);
  }

  if (!first_asked.empty()) pieces.push_back({process_set, now, ranks, std::move(first_asked)});
  std::erase_if(pieces_, [](const CachedPiece& piece) { return piece.ids.empty(); });
  for (auto& piece : pieces) add_piece(std::move(piece), touched);
  return {};
}

void MessageTable::add_piece(CachedPiece piece, Touched& touched) {
  if (piece.ranks.size() == members_in_scope(piece.process_set).size()) {
    touched.complete.push_back({std::move(piece.ranks), std::move(piece.ids)});
    return;
  }
  const auto same = std::find_if(pieces_.begin(), pieces_.end(), [&](const CachedPiece& other) {
    return other.process_set == piece.process_set && other.ranks == piece.ranks &&
           piece.since - other.since < kSameTime && other.since - piece.since < kSameTime;
  });
  if (same == pieces_.end()) {
    pieces_.push_back(std::move(piece));
  } else {
    same->ids.unite(piece.ids);
    same->since = std::min(same->since, piece.since);
  }
}

void MessageTable::expand() const {
  for (const auto& piece : pieces_) {
    piece.ids.for_each([&](CacheId id) {
      Row row;
      row.since = piece.since;
      row.asked = row.by_id = piece.ranks;
      row.id = id;
      rows_.emplace(key_of(cache_.get(id)->request), std::move(row));
    });
  }
  pieces_.clear();
}

const MessageTable::Rows& MessageTable::rows() const {
  expand();
  return rows_;
}

void MessageTable::only_rows() {
  expand();
  only_rows_ = true;
}

Status MessageTable::add(const FullRequest& asked, TimePoint now, Touched& touched) {
  expand();
  const auto key = key_of(asked.request);
  if (!sets_.contains(key.process_set)) {
    if (sets_.was_removed(key.process_set)) return {};
    return {Code::not_found,
            cat("\"", key.name, "\" in process set ", key.process_set, ", which does not exist")};
  }

  const bool ragged = is_ragged(asked.request);
  if (asked.first_extents.size() != (ragged ? asked.ranks.size() : 0)) {
    return {Code::data_loss, cat("\"", key.name, "\" with ", asked.first_extents.size(),
                                 " first extents of ", asked.ranks.size(), " ranks")};
  }

  if (is_among_named_ranks(asked.request)) {
    const auto named = RankSet::of_ranks(asked.request.ranks);
    if (!named.contains_all(asked.ranks)) {
      return {Code::permission_denied,
              cat("\"", key.name, "\" was requested by rank ",
                  asked.ranks.difference(named).front(), ", which it does not name")};
    }
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

  touched.rows.push_back(key);
  return {};
}

TimePoint MessageTable::oldest() const {
  TimePoint oldest = kNever;
  for (const auto& piece : pieces_) oldest = std::min(oldest, piece.since);
  for (const auto& [key, row] : rows_) oldest = std::min(oldest, row.since);
  return oldest;
}

RankSet MessageTable::participants(const TensorKey& key, const Row& row) const {
  const auto& members = members_in_scope(key.process_set);
  if (!is_among_named_ranks(row)) return members;
  RankSet all;
  for (const auto& variant : row.whole) all.unite(RankSet::of_ranks(variant.request.ranks));
  return all.intersection(members);
}

bool MessageTable::complete(const TensorKey& key, const Row& row) const {
  if (row.asked.size() == members_in_scope(key.process_set).size()) return true;
  return (!joined_.empty() || is_among_named_ranks(row)) && missing(key, row).empty();
}

RankSet MessageTable::missing(const TensorKey& key, const Row& row) const {
  auto ranks = participants(key, row).difference(row.asked);
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
  expand();
  if (!scope_.contains_all(ranks)) {
    return {Code::permission_denied, "ranks joined that are not here"};
  }
  if (joined_.intersects(ranks)) {
    return {Code::already_exists,
            cat("rank ", joined_.intersection(ranks).front(), " joined twice")};
  }
  joined_.unite(ranks);
  return {};
}

void MessageTable::answered(const IntervalSet& ids, const std::vector<SharedTensor>& tensors) {
  forget(ids);
  if (rows_.empty()) return;
  for (const auto& tensor : tensors) {
    if (const auto row = rows_.find(view_of(tensor->request)); row != rows_.end()) rows_.erase(row);
  }
}

void MessageTable::forget(const IntervalSet& ids) {
  for (auto& piece : pieces_) piece.ids.subtract(ids);
  std::erase_if(pieces_, [](const CachedPiece& piece) { return piece.ids.empty(); });
}

void MessageTable::evicted(const std::vector<EvictedTensor>& departed) {
  if (departed.empty()) return;
  IntervalSet ids;
  for (const auto& [id, tensor] : departed) ids.insert(id);
  forget(ids);
  for (const auto& [id, tensor] : departed) {
    const auto found = rows_.find(view_of(tensor->request));
    if (found == rows_.end() || found->second.id != id) continue;
    auto& row = found->second;
    row.asked.subtract(row.by_id);
    row.forwarded.subtract(row.by_id);
    row.by_id = {};
    row.id.reset();
    if (row.asked.empty()) rows_.erase(found);
  }
}

void MessageTable::set_removed(int process_set) {
  members_in_scope_.erase(process_set);
  std::erase_if(pieces_,
                [&](const CachedPiece& piece) { return piece.process_set == process_set; });
  std::erase_if(rows_, [&](const auto& row) { return row.first.process_set == process_set; });
}

}  // namespace hvd::runtime
