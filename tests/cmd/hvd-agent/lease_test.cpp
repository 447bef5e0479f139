// The arithmetic of the lease: what happened and when, and until when the workers may run and live.
#include "cmd/hvd-agent/lease.h"

#include <gtest/gtest.h>

namespace hvd::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr LeaseTime kReady{seconds(1000)};

LeaseTime at(int milliseconds_after_ready) {
  return kReady + milliseconds(milliseconds_after_ready);
}

Lease lease() { return {milliseconds(2000), kReady}; }

TEST(Lease, NeverEndsUnlessThereIsOne) {
  EXPECT_EQ(Lease().runs_until(), kNoLeaseEnd);
  Lease none(milliseconds(0), kReady);
  ASSERT_TRUE(none.heartbeat(1, 0, at(10)).ok());
  ASSERT_TRUE(none.heartbeat(2, 1, at(20)).ok());
  EXPECT_EQ(none.runs_until(), kNoLeaseEnd);
}

TEST(Lease, RunsFromReadyAtFirst) { EXPECT_EQ(lease().runs_until(), at(2000)); }

TEST(Lease, IsNotRenewedByAHeartbeatThatNamesNoAnswer) {
  Lease l = lease();
  ASSERT_TRUE(l.heartbeat(1, 0, at(300)).ok());
  ASSERT_TRUE(l.heartbeat(2, 0, at(600)).ok());
  EXPECT_EQ(l.runs_until(), at(2000));
}

TEST(Lease, RunsFromTheMomentAtWhichTheNamedAnswerWasSent) {
  Lease l = lease();
  ASSERT_TRUE(l.heartbeat(1, 0, at(300)).ok());
  ASSERT_TRUE(l.heartbeat(2, 1, at(1600)).ok());  // late, which is no reason to run longer
  EXPECT_EQ(l.runs_until(), at(300 + 2000));
  ASSERT_TRUE(l.heartbeat(3, 1, at(1700)).ok());  // nothing newer has arrived there
  EXPECT_EQ(l.runs_until(), at(300 + 2000));
  ASSERT_TRUE(l.heartbeat(4, 3, at(1800)).ok());
  EXPECT_EQ(l.runs_until(), at(1700 + 2000));
}

TEST(Lease, IsNotRenewedByOldHeartbeatsThatArriveTogetherAfterACut) {
  Lease l = lease();
  ASSERT_TRUE(l.heartbeat(1, 0, at(300)).ok());
  for (std::uint64_t i = 2; i <= 20; ++i) ASSERT_TRUE(l.heartbeat(i, 1, at(6000)).ok());
  EXPECT_EQ(l.runs_until(), at(300 + 2000));
  ASSERT_TRUE(l.heartbeat(21, 20, at(6001)).ok());  // now the driver has heard us again
  EXPECT_EQ(l.runs_until(), at(6000 + 2000));
}

TEST(Lease, RefusesWhatNoDriverSends) {
  Lease l = lease();
  EXPECT_EQ(l.heartbeat(0, 0, at(1)).code(), Code::data_loss);
  EXPECT_EQ(l.heartbeat(1, 1, at(1)).code(), Code::data_loss);
  ASSERT_TRUE(l.heartbeat(5, 0, at(1)).ok());
  EXPECT_EQ(l.heartbeat(5, 0, at(2)).code(), Code::data_loss);
  EXPECT_EQ(l.heartbeat(4, 0, at(2)).code(), Code::data_loss);
  EXPECT_EQ(l.heartbeat(6, 6, at(2)).code(), Code::data_loss);
  EXPECT_EQ(l.runs_until(), at(2000));
}

TEST(Lease, ForgetsTheOldestAnswersOfADriverThatNamesNone) {
  Lease l = lease();
  constexpr std::uint64_t kMany = 100'000;
  for (std::uint64_t i = 1; i <= kMany; ++i) ASSERT_TRUE(l.heartbeat(i, 0, at(10)).ok());
  ASSERT_TRUE(l.heartbeat(kMany + 1, 5, at(20)).ok());  // forgotten: no reason to run longer
  EXPECT_EQ(l.runs_until(), at(2000));
  ASSERT_TRUE(l.heartbeat(kMany + 2, kMany + 1, at(30)).ok());
  EXPECT_EQ(l.runs_until(), at(20 + 2000));
}

TEST(SharedLease, ShowsTheEndsAndRemembersThatSomebodyFroze) {
  auto board = SharedLease::create();
  ASSERT_TRUE(board.ok());
  EXPECT_EQ(board->runs_until(), kNoLeaseEnd);
  board->write(lease());
  EXPECT_EQ(board->runs_until(), at(2000));
  board->begin(milliseconds(30'000), 7);
  EXPECT_EQ(board->orphan_timeout(), milliseconds(30'000));
  EXPECT_EQ(board->local_driver(), 7);
  EXPECT_FALSE(board->paused());
  board->pause(true);
  EXPECT_TRUE(board->paused());
  EXPECT_EQ(board->times_heard(), 0);
  board->note_heard();
  EXPECT_EQ(board->times_heard(), 1);
  EXPECT_FALSE(board->take_frozen());
  board->note_frozen();
  EXPECT_TRUE(board->take_frozen());
  EXPECT_FALSE(board->take_frozen());
}

TEST(LeaseClock, GoesOn) {
  const LeaseTime before = LeaseClock::now();
  EXPECT_GT(before.time_since_epoch().count(), 0);
  EXPECT_LE(before, LeaseClock::now());
}

}  // namespace
}  // namespace hvd::agent
