#include "runtime/negotiation/last_requests.h"

#include <algorithm>

namespace hvd::runtime {

void LastRequests::heard(int rank, std::string tensor, TimePoint when) {
  const auto [found, is_new] = words_.try_emplace(rank);
  if (is_new || found->second.when <= when) found->second = {std::move(tensor), when};
}

void LastRequests::heard(int rank, const RequestList& message, const ResponseCache& cache,
                         TimePoint now) {
  const auto is_own = [rank](const auto& part) {
    return part.ranks.contains(static_cast<RankSet::Value>(rank));
  };
  if (const auto asked = std::find_if(message.full.rbegin(), message.full.rend(), is_own);
      asked != message.full.rend()) {
    heard(rank, asked->request.name, now);
    return;
  }
  const auto known = std::find_if(message.cached.rbegin(), message.cached.rend(), is_own);
  if (known == message.cached.rend() || known->ids.empty()) return;
  if (const auto tensor = cache.get(known->ids.back())) heard(rank, tensor->request.name, now);
}

std::vector<LastRequest> LastRequests::tell(TimePoint now) const {
  std::vector<LastRequest> all;
  all.reserve(words_.size());
  for (const auto& [rank, word] : words_) {
    const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(now - word.when);
    all.push_back({rank, word.tensor, ago});
  }
  return all;
}

const LastRequests::Word* LastRequests::find(int rank) const {
  const auto found = words_.find(rank);
  return found == words_.end() ? nullptr : &found->second;
}

}  // namespace hvd::runtime
