#include "base/security/pending_handshakes.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <vector>

namespace hvd {
namespace {

using std::chrono::seconds;

TimePoint at(int second) { return TimePoint(seconds(second)); }

TEST(PendingHandshakes, TheOldestMakesRoom) {
  PendingHandshakes<int> pending(3, seconds(10));
  for (int key = 1; key <= 3; ++key) EXPECT_EQ(pending.add(key, "a", at(key)), std::nullopt);
  EXPECT_TRUE(pending.remove(2)) << "it has proved itself";
  EXPECT_FALSE(pending.remove(2));
  EXPECT_EQ(pending.add(4, "a", at(4)), std::nullopt);
  EXPECT_EQ(pending.add(5, "a", at(5)), 1);
  EXPECT_EQ(pending.add(6, "a", at(6)), 3);
  EXPECT_EQ(pending.size(), 3U);
  EXPECT_FALSE(pending.contains(3));
}

TEST(PendingHandshakes, AFloodDrivesOutItselfAndNobodyElse) {
  PendingHandshakes<int> pending(100, seconds(10));
  for (int key = 0; key < 5; ++key) pending.add(key, "honest", at(0));
  for (int key = 5; key < 100'000; ++key) {
    const auto closed = pending.add(key, "flood", at(1));
    EXPECT_TRUE(!closed || *closed >= 5) << *closed;
  }
  for (int key = 0; key < 5; ++key) EXPECT_TRUE(pending.contains(key));
  // Nor do many addresses with one each drive out an address with few.
  PendingHandshakes<int> spread(10, seconds(10));
  for (int key = 0; key < 10; ++key) spread.add(key, std::to_string(key), at(0));
  ASSERT_TRUE(spread.add(10, "new", at(1))) << "all have one: any";
  if (spread.contains(10)) EXPECT_EQ(spread.add(11, "new", at(1)), 10) << "the one that has two";
}

// Somebody has more addresses than there is room: nobody can tell which one goes next.
TEST(PendingHandshakes, AmongAddressesWithOneEachChanceDecides) {
  constexpr int kRoom = 16;
  constexpr int kRounds = 400;
  int survived = 0;
  for (int round = 0; round < kRounds; ++round) {
    PendingHandshakes<int> pending(kRoom, seconds(10), static_cast<std::uint64_t>(round));
    pending.add(-1, "honest", at(0));
    for (int key = 0; key < 2 * kRoom - 1; ++key) pending.add(key, std::to_string(key), at(0));
    if (pending.contains(-1)) ++survived;
  }
  // It had to survive sixteen choices among seventeen: 38 of 100 do. As the oldest it would never.
  EXPECT_GT(survived, kRounds / 4);
  EXPECT_LT(survived, kRounds / 2);
}

TEST(PendingHandshakes, ThoseThatHaveBegunWellGoLast) {
  PendingHandshakes<int> pending(10, seconds(10));
  pending.add(-1, "honest", at(0));
  pending.note_begun(-1);
  for (int key = 0; key < 10'000; ++key) pending.add(key, std::to_string(key), at(0));
  EXPECT_TRUE(pending.contains(-1));
  // Also among those of one address.
  PendingHandshakes<int> shared(3, seconds(10));
  shared.add(-1, "shared", at(0));
  shared.note_begun(-1);
  for (int key = 0; key < 100; ++key) shared.add(key, "shared", at(0));
  EXPECT_TRUE(shared.contains(-1));
  EXPECT_TRUE(shared.remove(-1));
  shared.note_begun(-1);
  EXPECT_FALSE(shared.contains(-1)) << "it is gone";
}

TEST(PendingHandshakes, EachHasItsTime) {
  PendingHandshakes<int> pending(10, seconds(10));
  EXPECT_EQ(pending.deadline(), kNever);
  pending.add(1, "a", at(0));
  pending.add(2, "b", at(5));
  EXPECT_EQ(pending.deadline(), at(10));
  EXPECT_EQ(pending.take_expired(at(9)), std::nullopt);
  EXPECT_EQ(pending.take_expired(at(10)), 1);
  EXPECT_EQ(pending.take_expired(at(10)), std::nullopt);
  EXPECT_EQ(pending.deadline(), at(15));
  EXPECT_EQ(pending.evict(), 2);
  EXPECT_EQ(pending.evict(), std::nullopt);
}

TEST(PendingHandshakes, LeavesDescriptorsForTheMembersOfTheJob) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 1024;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(pending_limit(1'000'000, 4), 256U);
  EXPECT_EQ(pending_limit(100, 4), 100U);
  few.rlim_cur = 40;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(pending_limit(1'000'000, 4), 16U);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

std::string origin(const char* text) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    return origin_of(&v4);
  }
  v6.sin6_family = AF_INET6;
  EXPECT_EQ(::inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
  return origin_of(&v6);
}

TEST(PendingHandshakes, AnOriginIsWhatOnePartyHasOneOf) {
  EXPECT_EQ(origin("10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(origin("::ffff:10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(origin("2001:db8:1:2::1"), origin("2001:db8:1:2:ffff::2"));
  EXPECT_NE(origin("2001:db8:1:2::1"), origin("2001:db8:1:3::1"));
}

TEST(CountedWarning, TellsOnceInAWhileHowOftenItWas) {
  CountedWarning warning{seconds(30)};
  EXPECT_EQ(warning.count(at(0)), 1U);
  for (int second = 1; second < 30; ++second) EXPECT_EQ(warning.count(at(second)), std::nullopt);
  EXPECT_EQ(warning.count(at(30)), 30U);
  EXPECT_EQ(warning.count(at(59)), std::nullopt);
  EXPECT_EQ(warning.count(at(90)), 2U);
}

}  // namespace
}  // namespace hvd
