// When a wait has taken too long, and the words with which it ends.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/transport/messenger.h"

namespace hvd::runtime {

std::uint64_t Messenger::moved_for(const Endpoint& endpoint, Direction direction) const {
  std::uint64_t moved = 0;
  for (const auto& its : links_) {
    if (its->serves(endpoint, direction)) moved += its->moved(direction);
  }
  return moved;
}

std::vector<int> Messenger::missed() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (const auto& its : links_) {
    const bool is_new = ranks.empty() || ranks.back() != its->rank();
    if (its->is_missed() && is_new) ranks.push_back(its->rank());
  }
  return ranks;
}

Status Messenger::time_out(const Endpoint& endpoint, Direction direction,
                           std::chrono::milliseconds timeout) const {
  const auto oddities = explain();
  return {Code::deadline_exceeded,
          cat("timed out after ", timeout.count(), " ms in which ", wait_text(endpoint, direction),
              oddities.empty() ? "" : "; ", oddities)};
}

std::string Messenger::wait_text(const Endpoint& endpoint, Direction direction) const {
  const bool sends = direction == Direction::send;
  std::set<int> ranks;
  for (const auto& its : links_) {
    if (its->serves(endpoint, direction)) ranks.insert(its->rank());
  }
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(cat("rank ", rank));
  return cat("rank ", rank_, sends ? " could not send a message" : " waited for a message",
             names.empty() ? ""
             : sends       ? " to "
                           : " from ",
             join(names, ", "));
}

std::string Messenger::explain() const {
  std::vector<std::string> oddities;
  for (const auto& its : links_) {
    auto text = its->explain();
    if (!text.empty()) oddities.push_back(std::move(text));
  }
  return join(oddities, "; ");
}

}  // namespace hvd::runtime
