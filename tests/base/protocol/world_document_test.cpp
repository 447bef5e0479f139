#include "base/protocol/world_document.h"

#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/wire.h"

namespace hvd {
namespace {

using Json = nlohmann::json;

WorldDocument two_hosts() {
  WorldDocument world;
  world.job_id = "job-1";
  world.generation = 0xffffffffffffffff;
  world.state = WorldState::proposed;
  world.members = {
      {0, "a", 0, 11, "10.0.0.1", 0, 2, 0, 2},
      {1, "a", 1, 0xffffffffffffffff, "10.0.0.1", 1, 2, 0, 1},
      {2, "b", 0, 13, "fe80::1", 0, 1, 1, 2},
  };
  return world;
}

// In `hosts` hosts of `slots`, by names and addresses as clusters have them.
WorldDocument world_of(int hosts, int slots) {
  WorldDocument world;
  world.job_id = "job-1";
  world.generation = 7;
  for (int host = 0; host < hosts; ++host) {
    for (int slot = 0; slot < slots; ++slot) {
      WorldMember member;
      member.rank = static_cast<int>(world.members.size());
      member.host = cat("node", 1'000 + host);
      member.slot = slot;
      member.incarnation = 1 + world.members.size();
      member.address = cat("10.0.", host / 250, ".", host % 250);
      world.members.push_back(member);
    }
  }
  assign_local_and_cross_ranks(world.members);
  return world;
}

void expect_to_come_back(const WorldDocument& world) {
  const auto again = WorldDocument::decode(world.encode());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*again, world);
}

TEST(WorldDocument, ComesBackFromItsBytes) {
  for (const auto state : {WorldState::proposed, WorldState::effective}) {
    for (const bool last : {false, true}) {
      auto world = two_hosts();
      world.state = state;
      world.last = last;
      expect_to_come_back(world);
    }
  }
  expect_to_come_back(world_of(1, 1));
  expect_to_come_back(world_of(1, 1'024));
  expect_to_come_back(world_of(300, 3));
  EXPECT_EQ(two_hosts().members[1].worker(), "a#1");
}

// Hosts that come twice, names that are the beginnings of others, slots and incarnations in any
// order.
TEST(WorldDocument, ComesBackWhateverItsHostsAndWorkersAre) {
  std::mt19937 random(7);
  const std::vector<std::string> names = {"", "a", "ab", "abc", "b", std::string(300, 'n'), "\xff"};
  const std::vector<std::string> addresses = {"10.0.0.1", "10.0.0.10", "fe80::1", "10.0.0.2"};
  for (int round = 0; round < 300; ++round) {
    WorldDocument world;
    world.generation = random();
    std::set<std::pair<std::string, int>> places;
    std::set<std::uint64_t> incarnations;
    for (int i = 0; i < 12; ++i) {
      WorldMember member;
      member.host = names[random() % names.size()];
      member.address = addresses[random() % addresses.size()];
      member.slot = static_cast<int>(random() % 4);
      member.incarnation = random() % 3 == 0 ? ~std::uint64_t{0} - random() % 9 : random() % 30;
      if (places.contains({member.host, member.slot})) continue;
      if (!incarnations.insert(member.incarnation).second) continue;
      places.emplace(member.host, member.slot);
      member.rank = static_cast<int>(world.members.size());
      world.members.push_back(member);
    }
    assign_local_and_cross_ranks(world.members);
    expect_to_come_back(world);
  }
}

// It goes to every host, so that what a job sends grows with the square of their number.
TEST(WorldDocument, TakesSomeTenBytesForEachHost) {
  EXPECT_LT(world_of(1'000, 8).encode().size(), 12'000U);
  EXPECT_LT(world_of(10'000, 8).encode().size(), 120'000U);
}

TEST(WorldDocument, OnlyTheLastWorldSaysInJsonThatItIs) {
  auto world = two_hosts();
  EXPECT_FALSE(Json::parse(world.to_json()).contains("last"));
  world.last = true;
  EXPECT_EQ(Json::parse(world.to_json())["last"], true);
}

TEST(WorldDocument, SaysItsSizeToReadersOfJson) {
  const auto json = Json::parse(two_hosts().to_json());
  EXPECT_EQ(json["size"], 3);
  EXPECT_EQ(json["members"][2]["host"], "b");
}

TEST(WorldDocument, AHostNameThatIsNoUtf8IsNoObstacle) {
  auto world = two_hosts();
  world.members[0].host = "\xff\xfe";
  EXPECT_FALSE(Json::parse(world.to_json(), nullptr, false).is_discarded());
  EXPECT_TRUE(WorldDocument::decode(world.encode()).ok());
}

void expect_refused(const std::string& bytes, std::string_view word) {
  const auto world = WorldDocument::decode(bytes);
  ASSERT_FALSE(world.ok()) << word;
  EXPECT_EQ(world.status().code(), Code::data_loss) << word;
  EXPECT_NE(world.status().message().find("world document"), std::string::npos);
  EXPECT_NE(world.status().message().find(word), std::string::npos) << world.status().message();
}

TEST(WorldDocument, RefusesIdentitiesThatComeTwice) {
  auto world = two_hosts();
  world.members[1].slot = 0;
  expect_refused(world.encode(), "a#0 stands in it twice");
  world = two_hosts();
  world.members[2].incarnation = 11;
  expect_refused(world.encode(), "two members are of incarnation 11");
}

TEST(WorldDocument, RefusesOneWithoutMembers) {
  auto world = two_hosts();
  world.members.clear();
  expect_refused(world.encode(), "no members");
  world.last = true;
  expect_refused(world.encode(), "no members");
}

// Its head, and one stretch of members with these numbers.
std::string bytes_of(std::uint8_t flags, std::uint64_t alike, std::uint64_t slot,
                     std::uint64_t count) {
  WireWriter out;
  out.str("job").u64(1).u8(flags).varint(1);
  out.varint(alike).varint(1).raw("a").varint(0).varint(1).raw("b");
  return out.varint(count << 1 | 1).varint(slot).varint(1).take();
}

TEST(WorldDocument, RefusesEveryDefect) {
  ASSERT_TRUE(WorldDocument::decode(bytes_of(1, 0, 0, 1)).ok());
  expect_refused(bytes_of(4, 0, 0, 1), "unknown property");
  expect_refused(bytes_of(1, 1, 0, 1), "begins as none before it");
  expect_refused(bytes_of(1, 0, 0, 0), "without a member");
  expect_refused(bytes_of(1, 0, 0x80000000, 1), "slot");
  expect_refused(bytes_of(1, 0, ~std::uint64_t{0}, 1), "slot");
  expect_refused(bytes_of(1, 0, 0, 1) + "x", "");
}

TEST(WorldDocument, RefusesMoreMembersThanAWorldCanHaveBeforeItAsksForMemory) {
  expect_refused(bytes_of(1, 0, 0, kMostMembers + 1), "more than 100000 members");
  expect_refused(bytes_of(1, 0, 0, ~std::uint64_t{0} >> 1), "more than 100000 members");
  WireWriter many;
  many.str("job").u64(1).u8(1).varint(5);
  for (int i = 0; i < 5; ++i) {
    many.varint(0).varint(0).varint(0).varint(0).varint(kMostMembers / 4 << 1);
  }
  expect_refused(many.take(), "more than 100000 members");
}

// A name of many members may be written once.
TEST(WorldDocument, RefusesNamesThatWouldTakeMuchMemory) {
  WireWriter one;
  one.str("job").u64(1).u8(1).varint(1);
  one.varint(0).varint(9'000).raw(std::string(9'000, 'n')).varint(0).varint(0);
  expect_refused(one.varint(std::uint64_t{10'000} << 1).take(), "names are too long");
}

TEST(WorldDocument, RefusesEveryTruncation) {
  const std::string bytes = two_hosts().encode();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(WorldDocument::decode(bytes.substr(0, length)).ok()) << length;
  }
}

TEST(WorldDocument, ChangedBytesNeverCrashNorBreakWhatReadersRelyOn) {
  const std::string bytes = world_of(3, 2).encode();
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string changed = bytes;
    for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    const auto world = WorldDocument::decode(changed);
    if (!world.ok()) continue;
    for (std::size_t r = 0; r < world->members.size(); ++r) {
      EXPECT_EQ(world->members[r].rank, static_cast<int>(r));
    }
    expect_to_come_back(*world);
  }
}

TEST(CommitId, OfALaterWorldIsNewerWhateverItsSequence) {
  EXPECT_LT((CommitId{2, 900}), (CommitId{3, 0}));
  EXPECT_LT((CommitId{3, 0}), (CommitId{3, 1}));
  EXPECT_LT(CommitId(), (CommitId{1, 0}));
  EXPECT_LT((CommitId{3, 17}), (CommitId{3, 0, 1}));
  EXPECT_LT((CommitId{4, 17, 1}), (CommitId{3, 0, 2}));
  EXPECT_TRUE(CommitId().none());
  EXPECT_FALSE((CommitId{1, 0}).none());
}

TEST(CommitId, IsReadAsItIsWritten) {
  for (const CommitId id :
       {CommitId{}, CommitId{3, 17}, CommitId{~std::uint64_t{0}, 1}, CommitId{3, 0, 2}}) {
    const auto read = commit_id_from_text(to_text(id));
    ASSERT_TRUE(read.ok()) << to_text(id);
    EXPECT_EQ(*read, id);
  }
  EXPECT_EQ(to_text({3, 17}), "3.17");
  EXPECT_EQ(to_text({3, 17, 1}), "3.17.1");
}

TEST(CommitId, IsNotMadeOfAnythingElse) {
  for (const char* const text :
       {"", ".", "3", "3.", ".17", "3.17 ", " 3.17", "3.-1", "-3.1", "3.1.", "3.1.7.1", "a.b",
        "3,17", "99999999999999999999.1", "+3.1", "0x3.1"}) {
    const auto read = commit_id_from_text(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), Code::data_loss) << text;
    EXPECT_NE(read.status().message().find(cat("\"", text, "\"")), std::string::npos)
        << read.status().message();
  }
}

}  // namespace
}  // namespace hvd
