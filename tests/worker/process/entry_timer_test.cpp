#include "worker/process/entry_timer.h"

#include <gtest/gtest.h>

namespace hvd::worker {
namespace {

using std::chrono::nanoseconds;

TimePoint at(int time) { return TimePoint(nanoseconds(1'000'000 + time)); }

// In the first world, which was formed between 0 and 3.
class EntryTimerTest : public testing::Test {
 protected:
  EntryTimerTest() {
    timer_.heard_of_world(at(0));
    timer_.connected(1, at(3));
  }
  EntryTimer timer_;
};

TEST(EntryTimer, KnowsNothingBeforeTheFirstWorld) {
  EntryTimer timer;
  timer.world_ended(at(1));
  timer.left_world(at(2));
  timer.begin_vote(at(3));
  timer.voted(5, at(4));
  timer.has_state(at(5));
  timer.step_ended(at(6));
  EXPECT_EQ(timer.read(), WorldEntry());
}

TEST_F(EntryTimerTest, TheFirstWorldIsNotWaitedFor) {
  EXPECT_EQ(timer_.read(), (WorldEntry{.generation = 1, .connect_ns = 3}));
}

TEST_F(EntryTimerTest, WorkOfTheProgramBeforeTheRunDoesNotCount) {
  timer_.step_ended(at(50));
  timer_.begin_vote(at(100));
  timer_.voted(0, at(104));
  timer_.has_state(at(109));
  EXPECT_EQ(timer_.read(),
            (WorldEntry{.generation = 1, .connect_ns = 3, .vote_ns = 4, .sync_ns = 5}));
}

TEST_F(EntryTimerTest, StepsThatAreDoneAgainBelongToTheWorldInWhichTheyAre) {
  timer_.redoes(3);
  timer_.begin_vote(at(4));
  timer_.redoes(9);
  timer_.voted(0, at(5));
  EXPECT_EQ(timer_.read().redone_steps, 3U);
  timer_.has_state(at(6));
  timer_.world_ended(at(7));
  timer_.connected(2, at(8));
  timer_.heard_of_world(at(8));
  timer_.connected(2, at(9));
  EXPECT_EQ(timer_.read().redone_steps, 0U);
}

TEST_F(EntryTimerTest, WhatAMemberHasAlreadyIsNotExpected) {
  timer_.begin_vote(at(4));
  timer_.voted(77, at(5));
  timer_.found(70);
  EXPECT_EQ(timer_.read().expected_bytes, 7U);
  timer_.has_state(at(6));
  EXPECT_EQ(timer_.read().received_bytes, 7U);
  timer_.found(7);
  EXPECT_EQ(timer_.read().expected_bytes, 7U) << "it has all of it";
}

// At the beginning nobody says how large the state is.
TEST_F(EntryTimerTest, MoreThanWasExpectedMayBeThere) {
  timer_.begin_vote(at(4));
  timer_.voted(0, at(5));
  timer_.found(70);
  EXPECT_EQ(timer_.read().expected_bytes, 0U);
}

TEST_F(EntryTimerTest, ThePartsOfARecoveryFollowEachOther) {
  timer_.world_ended(at(10));
  timer_.world_ended(at(11));  // another call of the program has failed
  timer_.left_world(at(12));
  timer_.heard_of_world(at(15));
  timer_.connected(2, at(19));
  timer_.begin_vote(at(19));
  timer_.voted(77, at(24));
  timer_.has_state(at(30));
  timer_.step_ended(at(37));
  const WorldEntry entry = timer_.read();
  EXPECT_EQ(entry, (WorldEntry{.generation = 2,
                               .leave_ns = 2,
                               .wait_ns = 3,
                               .connect_ns = 4,
                               .vote_ns = 5,
                               .sync_ns = 6,
                               .expected_bytes = 77,
                               .received_bytes = 77,
                               .step_ns = 7}));
  EXPECT_EQ(entry.leave_ns + entry.wait_ns + entry.connect_ns + entry.vote_ns + entry.sync_ns +
                entry.step_ns,
            37U - 10U);
}

// A piece of the state may be large, and the link slow.
TEST(EntryTimer, CountsWhatComesOfAPieceThatIsNotWhole) {
  std::uint64_t moved = 1'000;
  EntryTimer timer([&moved] { return moved; });
  timer.heard_of_world(at(0));
  timer.connected(1, at(1));
  timer.begin_vote(at(2));
  moved += 5;  // the vote
  timer.voted(100, at(3));
  EXPECT_EQ(timer.read().received_bytes, 0U);
  moved += 30;
  EXPECT_EQ(timer.read().received_bytes, 30U);
  moved += 34;  // the piece, and something else
  timer.received(60);
  EXPECT_EQ(timer.read().received_bytes, 60U);
  moved += 50;
  EXPECT_EQ(timer.read().received_bytes, 100U);
  timer.has_state(at(4));
  moved += 50;
  EXPECT_EQ(timer.read().received_bytes, 100U);
}

TEST_F(EntryTimerTest, UntilTheNextWorldTheLastOneIsReported) {
  const WorldEntry first = timer_.read();
  timer_.world_ended(at(10));
  timer_.left_world(at(12));
  timer_.heard_of_world(at(13));
  EXPECT_EQ(timer_.read(), first);
}

TEST_F(EntryTimerTest, AFailedAttemptCountsAsAWaitForTheNext) {
  timer_.world_ended(at(10));
  timer_.left_world(at(11));
  timer_.heard_of_world(at(13));
  timer_.world_ended(at(20));  // a call that has failed since, in no world
  timer_.heard_of_world(at(23));
  timer_.connected(3, at(24));
  EXPECT_EQ(timer_.read(),
            (WorldEntry{.generation = 3, .leave_ns = 1, .wait_ns = 2 + 10, .connect_ns = 1}));
}

TEST_F(EntryTimerTest, TheEarliestEndOfTheFirstStepCounts) {
  timer_.step_ended(at(3));  // of the world before
  timer_.step_ended(at(20));
  timer_.step_ended(at(8));
  timer_.step_ended(at(30));
  EXPECT_EQ(timer_.read().step_ns, 5U);
}

// The state comes in parts of the same name, which look like steps.
TEST_F(EntryTimerTest, NoStepEndsBeforeTheStateIsThere) {
  timer_.begin_vote(at(4));
  timer_.step_ended(at(5));
  timer_.voted(100, at(6));
  timer_.step_ended(at(7));
  EXPECT_EQ(timer_.read().step_ns, 0U);
  timer_.has_state(at(10));
  timer_.step_ended(at(9));
  EXPECT_EQ(timer_.read().step_ns, 0U);
  timer_.step_ended(at(12));
  EXPECT_EQ(timer_.read(), (WorldEntry{.generation = 1,
                                       .connect_ns = 3,
                                       .vote_ns = 2,
                                       .sync_ns = 4,
                                       .expected_bytes = 100,
                                       .received_bytes = 100,
                                       .step_ns = 2}));
}

TEST_F(EntryTimerTest, AWorldThatEndsDuringItsVoteIsLeftAsOthersAre) {
  timer_.begin_vote(at(4));
  timer_.world_ended(at(6));
  timer_.left_world(at(7));
  timer_.heard_of_world(at(9));
  timer_.connected(2, at(10));
  EXPECT_EQ(timer_.read(),
            (WorldEntry{.generation = 2, .leave_ns = 1, .wait_ns = 2, .connect_ns = 1}));
}

TEST_F(EntryTimerTest, ASecondRunInTheSameWorldChangesNothing) {
  timer_.begin_vote(at(4));
  timer_.voted(0, at(5));
  timer_.has_state(at(6));
  const WorldEntry first = timer_.read();
  timer_.begin_vote(at(14));
  timer_.voted(9, at(15));
  timer_.has_state(at(16));
  EXPECT_EQ(timer_.read(), first);
}

}  // namespace
}  // namespace hvd::worker
