#include "runtime/shm/local_ranks.h"

#include <gtest/gtest.h>

#include "runtime/control/world.h"

namespace hvd::runtime {
namespace {

WorldSpec spec_of(int rank) {
  return {rank, {{"a#0", "a", "127.0.0.1"}, {"a#1", "a", "127.0.0.1"}}, 1, Token::random()};
}

TEST(LocalRanks, MayBeAbortedBeforeAnythingIsShared) {
  const WorldSpec spec = spec_of(0);
  LocalRanks closed(spec);
  closed.abort();
  EXPECT_EQ(closed.shared(), nullptr);

  LocalRanks opened(spec);
  EXPECT_FALSE(opened.open().empty());
  opened.abort();
  EXPECT_EQ(opened.shared(), nullptr);
}

TEST(LocalRanks, OfARankThatIsNotInTheWorldShareNothing) {
  for (const int rank : {-1, 2}) {
    const WorldSpec spec = spec_of(rank);
    LocalRanks ranks(spec);
    EXPECT_EQ(ranks.open(), "") << rank;
  }
}

}  // namespace
}  // namespace hvd::runtime
