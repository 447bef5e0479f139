// The last request of each rank, as far as it is known here. A pure value; for one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime {

class LastRequests {
 public:
  struct Word {
    std::string tensor;
    TimePoint when{};
  };

  // No effect if a later request is known.
  void heard(int rank, std::string tensor, TimePoint when);
  void heard(const LastRequest& word, TimePoint now) {
    heard(word.rank, word.tensor, now - word.ago);
  }
  // The last request of this rank itself in a message that it sent for its subtree.
  void heard(int rank, const RequestList& message, const ResponseCache& cache, TimePoint now);

  std::vector<LastRequest> tell(TimePoint now) const;
  const Word* find(int rank) const;  // null: nothing yet

 private:
  std::map<int, Word> words_;
};

}  // namespace hvd::runtime
