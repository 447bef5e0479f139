#include "base/background.h"

#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace hvd {
namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kGenerous{60};

// Work that hangs until it is let go, also after the end of the test.
struct Hang {
  std::promise<void> begun;
  std::promise<void> let_go;
  std::shared_future<void> may_end = let_go.get_future().share();
};

TEST(Background, DoesItsWorkInOrder) {
  std::vector<int> done;
  {
    Background background(kGenerous);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(background.add(1, [&done, i] { done.push_back(i); }).ok());
    }
    EXPECT_TRUE(background.wait());
    EXPECT_EQ(background.waiting(), 0U);
    ASSERT_TRUE(background.add(1, [&done] { done.push_back(100); }).ok());
  }
  ASSERT_EQ(done.size(), 101U) << "the end waits for what was added";
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
}

TEST(Background, WorkThatHangsHoldsUpNobodyAndIsLeftBehind) {
  const auto hang = std::make_shared<Hang>();
  const auto kept = std::make_shared<int>(0);  // what the work uses lives as long as it needs
  {
    Background background(milliseconds(50));
    ASSERT_TRUE(background
                    .add(10,
                         [hang, kept] {
                           hang->begun.set_value();
                           hang->may_end.wait();
                           *kept = 1;
                         })
                    .ok());
    hang->begun.get_future().wait();
    ASSERT_TRUE(background.add(5, [] { FAIL() << "it was dropped"; }).ok());
    EXPECT_EQ(background.waiting(), 15U);
    EXPECT_FALSE(background.wait());
    EXPECT_TRUE(background.hangs(Clock::now()));
    EXPECT_EQ(background.drop().bytes, 5U);
    EXPECT_EQ(background.waiting(), 10U);
  }
  EXPECT_EQ(*kept, 0);
  hang->let_go.set_value();
}

TEST(Background, TakesNothingAfterItsEnd) {
  Background background(kGenerous);
  ASSERT_TRUE(background.add(1, [] {}).ok());
  EXPECT_TRUE(background.finish());
  EXPECT_EQ(background.add(1, [] {}).code(), Code::aborted);
}

}  // namespace
}  // namespace hvd
