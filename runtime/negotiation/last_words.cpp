#include "runtime/negotiation/last_words.h"

#include <algorithm>

namespace hvd::runtime {

void LastWords::heard(int rank, std::string tensor, TimePoint when) {
  const auto [found, is_new] = words_.try_emplace(rank);
  if (is_new || found->second.when <= when) found->second = {std::move(tensor), when};
}

void LastWords::heard(int rank, const Upward& message, const ResponseCache& cache, TimePoint now) {
  const auto is_his = [rank](const auto& part) {
    return part.ranks.contains(static_cast<RankSet::Value>(rank));
  };
  if (const auto asked = std::find_if(message.asked.rbegin(), message.asked.rend(), is_his);
      asked != message.asked.rend()) {
    heard(rank, asked->request.name, now);
    return;
  }
  const auto known = std::find_if(message.known.rbegin(), message.known.rend(), is_his);
  if (known == message.known.rend() || known->ids.empty()) return;
  if (const auto tensor = cache.get(known->ids.back())) heard(rank, tensor->request.name, now);
}

std::vector<LastWord> LastWords::tell(TimePoint now) const {
  std::vector<LastWord> all;
  all.reserve(words_.size());
  for (const auto& [rank, word] : words_) {
    const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(now - word.when);
    all.push_back({rank, word.tensor, ago});
  }
  return all;
}

const LastWords::Word* LastWords::find(int rank) const {
  const auto found = words_.find(rank);
  return found == words_.end() ? nullptr : &found->second;
}

}  // namespace hvd::runtime
