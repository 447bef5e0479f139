#include "driver/job/heartbeats.h"

#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kStart{std::chrono::hours(1)};
constexpr milliseconds kTimeout{1'000};
constexpr milliseconds kOrphanTimeout{5'000};

TimePoint at(int ms) { return kStart + milliseconds(ms); }

// Watches all from time 0 on.
Heartbeats watching(std::vector<bool> local, milliseconds orphan_timeout = kOrphanTimeout) {
  const std::size_t hosts = local.size();
  Heartbeats heartbeats({kTimeout, orphan_timeout}, std::move(local));
  for (std::size_t host = 0; host < hosts; ++host) heartbeats.watch(host, at(0));
  return heartbeats;
}

// Lets time pass and looks whenever it is due, while the hosts `heard` are heard every 100 ms;
// until the first judgement of which `until` is true.
template <typename Condition>
std::optional<int> pass(Heartbeats& heartbeats, int from, int to,
                        const std::vector<std::size_t>& heard, const Condition& until) {
  for (int ms = from; ms <= to; ++ms) {
    const bool beat = ms % 100 == 0;
    if (!beat && heartbeats.next_look() > at(ms)) continue;
    if (beat) {
      for (const std::size_t host : heard) heartbeats.hear(host, at(ms));
    }
    if (heartbeats.next_look() > at(ms)) continue;
    const auto judgement = heartbeats.judge(at(ms));
    for (const std::size_t host : judgement.lost) heartbeats.forget(host);
    if (until(judgement)) return ms;
  }
  return std::nullopt;
}

bool somebody_is_lost(const Heartbeats::Judgement& judgement) { return !judgement.lost.empty(); }
bool a_delay_begins(const Heartbeats::Judgement& judgement) { return judgement.delay_begins; }
bool anything(const Heartbeats::Judgement& judgement) {
  return somebody_is_lost(judgement) || a_delay_begins(judgement);
}

TEST(Heartbeats, AHostThatIsHeardIsNeverLost) {
  Heartbeats heartbeats = watching({false, false});
  EXPECT_EQ(pass(heartbeats, 1, 60'000, {0, 1}, anything), std::nullopt);
}

TEST(Heartbeats, ASilentHostIsLostWhenTheTimeoutIsOver) {
  Heartbeats heartbeats = watching({false, false, false});
  Heartbeats::Judgement seen;
  EXPECT_EQ(pass(heartbeats, 1, 60'000, {0, 2},
                 [&](const auto& judgement) {
                   seen = judgement;
                   return anything(judgement);
                 }),
            1'000);
  EXPECT_EQ(seen.lost, std::vector<std::size_t>{1});
  EXPECT_EQ(seen.silent_for, kTimeout);
  EXPECT_FALSE(seen.delayed);
}

TEST(Heartbeats, ASingleHostGetsNoDelay) {
  Heartbeats heartbeats = watching({false});
  EXPECT_EQ(pass(heartbeats, 1, 60'000, {}, somebody_is_lost), 1'000);
  EXPECT_EQ(heartbeats.next_look(), kNever);
}

TEST(Heartbeats, SilenceOfAllIsNobodysLossUntilTheOrphanTimeout) {
  Heartbeats heartbeats = watching({false, false});
  EXPECT_EQ(pass(heartbeats, 1, 1'000, {}, a_delay_begins), 1'000);
  EXPECT_TRUE(heartbeats.delaying());
  EXPECT_EQ(heartbeats.delay_ends(), at(5'000));
  EXPECT_EQ(pass(heartbeats, 1'001, 60'000, {}, anything), 5'000);
}

TEST(Heartbeats, AHostThatIsHeardEndsTheDelayAndTheOthersGetAFreshTimeout) {
  Heartbeats heartbeats = watching({false, false});
  ASSERT_EQ(pass(heartbeats, 1, 2'499, {}, somebody_is_lost), std::nullopt);
  EXPECT_TRUE(heartbeats.hear(1, at(2'500)));
  EXPECT_FALSE(heartbeats.delaying());
  EXPECT_EQ(pass(heartbeats, 2'501, 60'000, {1}, anything), 3'500);
}

TEST(Heartbeats, FreshTimeoutsDoNotAddUpBeyondTheOrphanTimeout) {
  Heartbeats heartbeats = watching({false, false});
  for (int ms = 1; ms < 5'000; ++ms) {
    // Host 1 is heard each time shortly after a delay has begun.
    if (ms % 1'200 == 0) heartbeats.hear(1, at(ms));
    EXPECT_TRUE(heartbeats.judge(at(ms)).lost.empty()) << ms;
  }
  EXPECT_EQ(heartbeats.judge(at(5'000)).lost, std::vector<std::size_t>{0});
}

TEST(Heartbeats, ALocalAgentProvesNothingOfTheNetwork) {
  Heartbeats heartbeats = watching({true, false, false});
  EXPECT_EQ(pass(heartbeats, 1, 60'000, {0}, anything), 1'000);
  EXPECT_TRUE(heartbeats.delaying());
  EXPECT_FALSE(heartbeats.delaying_everybody());
  EXPECT_EQ(pass(heartbeats, 1'001, 60'000, {0}, anything), 5'000);
}

TEST(Heartbeats, TheOnlyOtherMachineIsLostIfALocalAgentIsHeard) {
  Heartbeats heartbeats = watching({true, false});
  EXPECT_EQ(pass(heartbeats, 1, 60'000, {0}, somebody_is_lost), 1'000);
}

TEST(Heartbeats, ALocalAgentIsLostAloneIfAMachineIsHeard) {
  Heartbeats heartbeats = watching({true, true, false});
  EXPECT_EQ(pass(heartbeats, 1, 60'000, {2}, somebody_is_lost), 1'000);
}

TEST(Heartbeats, ALocalAgentThatIsHeardAgainLeavesTheMachinesSilent) {
  Heartbeats heartbeats = watching({true, false, false});
  ASSERT_EQ(pass(heartbeats, 1, 1'999, {}, somebody_is_lost), std::nullopt);
  EXPECT_TRUE(heartbeats.delaying_everybody());
  EXPECT_FALSE(heartbeats.hear(0, at(2'000)));
  EXPECT_TRUE(heartbeats.delaying());
  EXPECT_EQ(pass(heartbeats, 2'001, 60'000, {0}, anything), 5'000);
}

TEST(Heartbeats, HalfATimeoutApartIsNotTogether) {
  Heartbeats heartbeats = watching({false, false});
  ASSERT_EQ(pass(heartbeats, 1, 600, {1}, anything), std::nullopt);
  EXPECT_EQ(pass(heartbeats, 601, 60'000, {}, anything), 1'000);
}

TEST(Heartbeats, ADriverThatWasHeldUpBlamesNobody) {
  Heartbeats heartbeats = watching({false, false});
  ASSERT_EQ(pass(heartbeats, 1, 900, {1}, anything), std::nullopt);
  heartbeats.held_up(milliseconds(19'100), at(900));
  EXPECT_EQ(pass(heartbeats, 901, 60'000, {1}, anything), 1'900);
}

TEST(Heartbeats, AShortHoldUpGivesNoFreshTimeout) {
  Heartbeats heartbeats = watching({false, false});
  ASSERT_EQ(pass(heartbeats, 1, 900, {1}, anything), std::nullopt);
  heartbeats.held_up(kTimeout / 3, at(900));
  EXPECT_EQ(pass(heartbeats, 901, 60'000, {1}, anything), 1'000);
}

TEST(Heartbeats, AHostThatTheDriverIsBehindWithIsExcused) {
  Heartbeats heartbeats = watching({false, false, false});
  int lost_at = 0;
  for (int ms = 100; lost_at == 0 && ms < 10'000; ms += 100) {
    if (ms <= 4'000) heartbeats.excuse(0, at(ms));
    heartbeats.hear(1, at(ms));
    heartbeats.hear(2, at(ms));
    if (!heartbeats.judge(at(ms)).lost.empty()) lost_at = ms;
  }
  EXPECT_EQ(lost_at, 5'000);  // a timeout after the driver has come round
}

TEST(Heartbeats, AnExcusedHostVouchesForNobody) {
  Heartbeats heartbeats = watching({false, false, false});
  for (int ms = 100; ms < 5'000; ms += 100) {
    heartbeats.excuse(0, at(ms));
    EXPECT_TRUE(heartbeats.judge(at(ms)).lost.empty()) << ms;
  }
  EXPECT_TRUE(heartbeats.delaying_everybody());
  EXPECT_EQ(heartbeats.judge(at(5'000)).lost, (std::vector<std::size_t>{1, 2}));
}

TEST(Heartbeats, WithoutAnOrphanTimeoutADelayHasNoEnd) {
  Heartbeats heartbeats = watching({false, false}, milliseconds(0));
  EXPECT_EQ(pass(heartbeats, 1, 600'000, {}, somebody_is_lost), std::nullopt);
  EXPECT_EQ(heartbeats.delay_ends(), kNever);
}

TEST(Heartbeats, WithoutATimeoutNobodyIsEverLost) {
  Heartbeats heartbeats({milliseconds(0), kOrphanTimeout}, {false, false});
  heartbeats.watch(0, at(0));
  EXPECT_EQ(heartbeats.next_look(), kNever);
  EXPECT_TRUE(heartbeats.judge(at(1'000'000)).lost.empty());
}

TEST(Heartbeats, TheLastHostOfASilentPairIsLostAtOnce) {
  Heartbeats heartbeats = watching({false, false});
  ASSERT_EQ(pass(heartbeats, 1, 2'000, {}, somebody_is_lost), std::nullopt);
  heartbeats.forget(0);  // its link has ended
  EXPECT_EQ(pass(heartbeats, 2'001, 60'000, {}, somebody_is_lost), 2'100);
  EXPECT_FALSE(heartbeats.delaying());
}

}  // namespace
}  // namespace hvd::driver
