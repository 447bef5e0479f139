#include "runtime/core/brief_wait.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "runtime/core/affinity.h"
#include "tests/runtime/ranks.h"

namespace hvd::test {
namespace {

using runtime::BriefWait;

TEST(BriefWait, ReturnsAsSoonAsItIsOver) {
  BriefWait wait;
  for (const bool own_core : {true, false}) {
    EXPECT_TRUE(wait.until(own_core, [] { return true; }));
    int left = 2;  // one look after the first one is certain
    EXPECT_TRUE(wait.until(own_core, [&left] { return --left == 0; }));
    EXPECT_FALSE(wait.until(own_core, [] { return false; }));
  }
}

// How often a wait that times out looks: once if it gives up at once.
int looks_of(BriefWait& wait, bool own_core) {
  int looks = 0;
  EXPECT_FALSE(wait.until(own_core, [&looks] { return ++looks < 0; }));
  return looks;
}

TEST(BriefWait, DoesNotYieldToProgramsThatKeepTheCore) {
  runtime::PinnedThread here;
  ASSERT_TRUE(here.pin(runtime::usable_cores().front()).ok());
  std::atomic<bool> over = false;
  // It inherits the only core.
  std::thread computes([&over] {
    while (!over) {
    }
  });

  BriefWait wait;
  const auto deadline = Clock::now() + kLong;
  bool gave_up = false;
  while (!gave_up && Clock::now() < deadline) gave_up = looks_of(wait, false) == 1;
  EXPECT_TRUE(gave_up);
  EXPECT_GT(looks_of(wait, true), 1) << "spinning needs no other thread";
  over = true;
  computes.join();

  bool yields = false;
  while (!yields && Clock::now() < deadline) yields = looks_of(wait, false) > 1;
  EXPECT_TRUE(yields) << "the core is free again";
}

}  // namespace
}  // namespace hvd::test
