// What ranks asked for last, as far as somebody has heard. A pure value; for one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/negotiation/traffic.h"

namespace hvd::runtime {

class LastWords {
 public:
  struct Word {
    std::string tensor;
    TimePoint when{};
  };

  // Older news than what is known change nothing.
  void heard(int rank, std::string tensor, TimePoint when);
  void heard(const LastWord& word, TimePoint now) { heard(word.rank, word.tensor, now - word.ago); }
  // What this rank itself asks for in a message that it sent for its subtree.
  void heard(int rank, const Upward& message, const ResponseCache& cache, TimePoint now);

  std::vector<LastWord> tell(TimePoint now) const;
  const Word* find(int rank) const;  // null: nothing yet

 private:
  std::map<int, Word> words_;
};

}  // namespace hvd::runtime
