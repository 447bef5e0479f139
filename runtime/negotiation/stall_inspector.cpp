#include "runtime/negotiation/stall_inspector.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// More items than this are counted, not listed: a warning is for a person.
constexpr std::size_t kListed = 6;

// What is said of a rank that keeps others waiting in a world that has not failed.
constexpr std::string_view kIsUp = "its connection is up, ";

// How long something has taken so far.
std::string elapsed_text(Duration time) {
  return seconds_text(std::chrono::floor<std::chrono::seconds>(time));
}

std::string listed(const std::vector<std::string>& parts, std::string_view separator) {
  if (parts.size() <= kListed) return join(parts, separator);
  const std::vector<std::string> some(parts.begin(), parts.begin() + kListed);
  return cat(join(some, separator), separator, "and ", parts.size() - kListed, " more");
}

std::string quoted(const TensorKey& key) {
  return key.process_set == kGlobalSet
             ? cat('"', key.name, '"')
             : cat('"', key.name, "\" (process set ", key.process_set, ")");
}

}  // namespace

std::vector<StallInspector::Stalled> StallInspector::stalled(const MessageTable& table,
                                                             Duration least, TimePoint now) {
  std::vector<Stalled> all;
  for (const auto& [key, row] : table.rows()) {
    if (row.since + least <= now) all.push_back({key, row.since, table.missing(key, row)});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Stalled& a, const Stalled& b) { return a.since < b.since; });
  return all;
}

std::string StallInspector::last_request_text(int rank, const std::vector<Stalled>& stalled,
                                              const LastRequests& words, TimePoint now) const {
  // This rank has not asked for it, so another one has.
  const auto is_of_others = [&](const std::string& tensor) {
    return std::any_of(stalled.begin(), stalled.end(), [&](const Stalled& one) {
      return one.key.name == tensor && one.missing.contains(static_cast<RankSet::Value>(rank));
    });
  };
  bool is_known_of_others = false;
  // If this rank's own last request is not known, that of the nearest rank above it stands in.
  for (int speaker = rank; speaker >= 0; speaker = tree_.parent(speaker)) {
    const auto* word = words.find(speaker);
    if (word == nullptr) continue;
    if (speaker != rank && is_of_others(word->tensor)) {
      is_known_of_others = true;
      continue;
    }
    return cat(speaker == rank ? "it asked for" : "its part of the tree asked for", " \"",
               word->tensor, "\" last, ", elapsed_text(now - word->when), " ago");
  }
  return is_known_of_others ? "what it asked for last is not known"
                            : "it has asked for nothing so far";
}

std::string StallInspector::missing_text(const MessageTable& table, const LastRequests& words,
                                         TimePoint now) const {
  return missing_text(stalled(table, Duration::zero(), now), {}, words, now);
}

std::string StallInspector::missing_text(const std::vector<Stalled>& stalled, std::string_view link,
                                         const LastRequests& words, TimePoint now) const {
  std::map<int, std::vector<std::string>> by_rank;
  RankSet missing;
  for (const auto& tensor : stalled) missing.unite(tensor.missing);

  std::vector<std::string> lines;
  std::size_t shown = 0;
  for (const auto& interval : missing.intervals()) {
    for (auto rank = interval.begin; rank < interval.end && shown < kListed; ++rank, ++shown) {
      std::vector<std::string> names;
      for (const auto& tensor : stalled) {
        if (tensor.missing.contains(rank)) names.push_back(quoted(tensor.key));
      }
      const int number = static_cast<int>(rank);
      lines.push_back(cat(tree_.describe(number), " has not asked for ", listed(names, ", "), "; ",
                          link, last_request_text(number, stalled, words, now)));
    }
  }

  if (missing.size() > shown) lines.push_back(cat("and ", missing.size() - shown, " more ranks"));
  return join(lines, "\n  ");
}

StallInspector::Findings StallInspector::look(const MessageTable& table, const LastRequests& words,
                                              TimePoint now) {
  Findings findings;
  if (warning_ == Duration::zero()) return findings;

  for (auto item = warned_.begin(); item != warned_.end();) {
    const auto current = item++;
    if (table.rows().contains(current->first)) continue;
    findings.recoveries.push_back(cat(quoted(current->first), " goes on, after it had waited for ",
                                      elapsed_text(now - current->second)));
    warned_.erase(current);
  }

  if (now < look_at_) return findings;
  look_at_ = kNever;

  const auto waiting = stalled(table, warning_, now);
  if (!waiting.empty() && shutdown_ != Duration::zero() &&
      now - waiting.front().since >= shutdown_) {
    std::vector<Stalled> over;
    std::copy_if(waiting.begin(), waiting.end(), std::back_inserter(over),
                 [&](const Stalled& tensor) { return now - tensor.since >= shutdown_; });
    // Where ranks wait for each other in two tensors, the smaller group took the different path; of
    // equal groups, the one that went ahead, for which the others have waited for a shorter time.
    const auto blamed =
        std::min_element(over.begin(), over.end(), [](const Stalled& a, const Stalled& b) {
          return std::pair(a.missing.size(), -a.since.time_since_epoch()) <
                 std::pair(b.missing.size(), -b.since.time_since_epoch());
        });
    const int rank = static_cast<int>(blamed->missing.front());
    findings.failure = {
        Status(Code::deadline_exceeded,
               cat("stalled for ", elapsed_text(now - over.front().since), ", the limit is ",
                   seconds_text(shutdown_), ":\n  ", missing_text(over, kIsUp, words, now))),
        rank, tree_.host(rank)};
    return findings;
  }

  if (!waiting.empty() && now >= quiet_until_) {
    quiet_until_ = now + warning_;
    findings.warnings.push_back(cat("Some ranks have been waiting for more than ",
                                    seconds_text(warning_),
                                    " for others that have not asked for the same tensors:\n  ",
                                    missing_text(waiting, kIsUp, words, now)));
    for (const auto& tensor : waiting) warned_.emplace(tensor.key, tensor.since);
  }

  for (const auto& [key, row] : table.rows()) {
    look_at_ = std::min(look_at_, std::max(row.since + warning_, quiet_until_));
    if (shutdown_ != Duration::zero()) look_at_ = std::min(look_at_, row.since + shutdown_);
  }

  return findings;
}

TimePoint StallInspector::next_look(const MessageTable& table, TimePoint now) {
  if (warning_ == Duration::zero() || table.empty()) return look_at_ = kNever;
  if (look_at_ == kNever) look_at_ = now + warning_;
  return look_at_;
}

}  // namespace hvd::runtime
