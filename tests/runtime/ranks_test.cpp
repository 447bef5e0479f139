// Guarantees of ranks.h to tests that use it: a rank's failure is a failure of the test, and
// nothing is left behind.
#include "tests/runtime/ranks.h"

#include <cerrno>
#include <csignal>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"

namespace hvd::test {
namespace {

void expect_no_children() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

class Ranks : public ::testing::TestWithParam<RanksAs> {};

TEST_P(Ranks, ExchangeDataAsOftenAsTheyLike) {
  on_ranks(GetParam(), 4, [](int rank, runtime::Exchange& exchange) {
    for (int round = 0; round < 50; ++round) {
      const auto all = exchange.exchange(cat(rank, " in ", round), Clock::now() + kLong);
      ASSERT_TRUE(all.ok()) << all.status().message();
      ASSERT_EQ(all->size(), 4U);
      for (std::size_t from = 0; from < 4; ++from)
        EXPECT_EQ((*all)[from], cat(from, " in ", round));
    }
  });
  expect_no_children();
}

INSTANTIATE_TEST_SUITE_P(As, Ranks, ::testing::Values(RanksAs::threads, RanksAs::processes),
                         [](const ::testing::TestParamInfo<RanksAs>& how) {
                           return how.param == RanksAs::threads ? "Threads" : "Processes";
                         });

// The others would wait for ever.
void wait_while(int victim, const std::function<void()>& ends) {
  on_ranks(RanksAs::processes, 3, [&](int rank, runtime::Exchange& exchange) {
    ASSERT_TRUE(exchange.exchange("", Clock::now() + kLong).ok());
    if (rank == victim) ends();
    for (;;) ::pause();
  });
}

TEST(RankProcesses, AreAllGoneWhenOneHasFailed) {
  EXPECT_NONFATAL_FAILURE(wait_while(1, [] { ::_exit(7); }), "rank 1 of 3 ended with exit code 7");
  expect_no_children();
  EXPECT_NONFATAL_FAILURE(wait_while(2, [] { ::raise(SIGKILL); }), "rank 2 of 3 died of signal 9");
  expect_no_children();
  EXPECT_NONFATAL_FAILURE(wait_while(0, [] { throw std::runtime_error("enough"); }),
                          "rank 0 of 3 ended with exit code 1, as said above");
  expect_no_children();
}

TEST(RankProcesses, AreAllGoneWhenOneLeavesTheOthersInAnExchange) {
  const auto leave_them = [] {
    on_ranks(RanksAs::processes, 3, [](int rank, runtime::Exchange& exchange) {
      if (rank != 1) (void)exchange.exchange("", Clock::now() + kLong);
    });
  };
  EXPECT_NONFATAL_FAILURE(leave_them(), "a rank has ended, and others wait in an exchange for it");
  expect_no_children();
}

}  // namespace
}  // namespace hvd::test
