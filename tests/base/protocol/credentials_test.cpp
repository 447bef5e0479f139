#include "base/protocol/credentials.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd {
namespace {

WorldDocument world_of(std::uint64_t generation, int size) {
  WorldDocument world;
  world.job_id = "job";
  world.generation = generation;
  for (int rank = 0; rank < size; ++rank) {
    const auto incarnation = 10U + static_cast<std::uint64_t>(rank);
    world.members.push_back({rank, "a", rank, incarnation, "127.0.0.1", rank, size, 0, 1});
  }
  return world;
}

Token credential_of(const Token& job_key, const WorldMember& member) {
  return worker_credential(job_key, member.worker(), member.incarnation);
}

TEST(Credentials, AreBoundToTheJobTheWorkerAndItsIncarnation) {
  const Token job = Token::random();
  const std::string one{worker_credential(job, "a#1", 7).bytes()};
  EXPECT_EQ(worker_credential(job, "a#1", 7).bytes(), one);
  EXPECT_NE(worker_credential(job, "a#1", 8).bytes(), one);
  EXPECT_NE(worker_credential(job, "b#1", 7).bytes(), one);
  EXPECT_NE(worker_credential(job, "a#17", 7).bytes(), worker_credential(job, "a#1", 77).bytes());
  EXPECT_NE(worker_credential(Token::random(), "a#1", 7).bytes(), one);
  EXPECT_NE(generation_key(job, 7).bytes(), one);
  EXPECT_NE(generation_key(job, 7).bytes(), generation_key(job, 8).bytes());
  EXPECT_NE(generation_key(job, 7).bytes(), job.bytes());
}

TEST(Credentials, EachMemberFindsTheKeyOfItsWorldInTheDocument) {
  const Token job = Token::random();
  auto sent = world_of(4, 3);
  seal_keys(job, sent);
  const auto world = WorldDocument::from_json(sent.to_json());
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(*world, sent);
  for (const auto& member : world->members) {
    const auto key = open_key(*world, member, credential_of(job, member));
    ASSERT_TRUE(key.ok()) << key.status().to_string();
    EXPECT_EQ(key->bytes(), generation_key(job, 4).bytes());
  }
}

TEST(Credentials, NobodyElseOpensTheKeyOfAWorld) {
  const Token job = Token::random();
  auto world = world_of(4, 2);
  seal_keys(job, world);
  const std::string hidden = to_hex(generation_key(job, 4).bytes());
  EXPECT_EQ(world.to_json().find(hidden), std::string::npos);

  // A member of the world before that is none of this one, with each of the sealed keys.
  const Token removed = worker_credential(job, "a#2", 12);
  for (const auto& member : world.members) {
    EXPECT_EQ(open_key(world, member, removed).status().code(), Code::data_loss);
  }
  // Nor does a member open that of a world that it is no member of.
  auto next = world_of(5, 1);
  seal_keys(job, next);
  next.members.push_back(world.members[1]);
  next.sealed_keys.push_back(world.sealed_keys[1]);
  const auto stale = open_key(next, next.members[1], credential_of(job, next.members[1]));
  EXPECT_EQ(stale.status().code(), Code::data_loss);
}

TEST(Credentials, AKeyThatWasChangedOrIsMissingIsFound) {
  const Token job = Token::random();
  auto world = world_of(4, 1);
  const WorldMember self = world.members.front();
  const Token own = credential_of(job, self);
  EXPECT_NE(open_key(world, self, own).status().message().find("no key for a#0"),
            std::string::npos);

  seal_keys(job, world);
  const std::string good = world.sealed_keys.front();
  for (std::size_t i = 0; i < good.size(); ++i) {
    world.sealed_keys.front()[i] = good[i] == '0' ? '1' : '0';
    EXPECT_EQ(open_key(world, self, own).status().code(), Code::data_loss) << i;
    world.sealed_keys.front() = good.substr(0, i);
    EXPECT_EQ(open_key(world, self, own).status().code(), Code::data_loss) << i;
    world.sealed_keys.front() = good;
  }
  EXPECT_TRUE(open_key(world, self, own).ok());
}

TEST(Credentials, ADocumentInWhichOnlySomeHaveAKeyIsRefused) {
  auto world = world_of(4, 2);
  seal_keys(Token::random(), world);
  world.sealed_keys.pop_back();
  const auto read = WorldDocument::from_json(world.to_json());
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("others have none"), std::string::npos);
}

}  // namespace
}  // namespace hvd
