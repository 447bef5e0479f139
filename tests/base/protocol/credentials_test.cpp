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

TEST(Credentials, EachMemberOpensTheKeyThatWasSealedForIt) {
  const Token job = Token::random();
  const auto world = world_of(4, 3);
  const auto keys = sealed_keys(job, world);
  ASSERT_EQ(keys.size(), 3U);
  for (const auto& member : world.members) {
    const auto& sealed = keys[static_cast<std::size_t>(member.rank)];
    const auto key = open_key(4, member, sealed, credential_of(job, member));
    ASSERT_TRUE(key.ok()) << key.status().to_string();
    EXPECT_EQ(key->bytes(), generation_key(job, 4).bytes());
  }
  // A world that is published twice says the same.
  EXPECT_EQ(keys, sealed_keys(job, world));
}

TEST(Credentials, NobodyElseOpensTheKeyOfAWorld) {
  const Token job = Token::random();
  const auto world = world_of(4, 2);
  const auto keys = sealed_keys(job, world);
  const std::string hidden{generation_key(job, 4).bytes()};
  for (const auto& sealed : keys) EXPECT_EQ(sealed.find(hidden), std::string::npos);

  // A member of the world before that is none of this one, with each of the sealed keys.
  const Token removed = worker_credential(job, "a#2", 12);
  for (const auto& member : world.members) {
    for (const auto& sealed : keys) {
      EXPECT_EQ(open_key(4, member, sealed, removed).status().code(), Code::data_loss);
    }
  }
  // A member opens neither the key of another one, nor its own for another generation.
  const auto& self = world.members[1];
  const Token own = credential_of(job, self);
  EXPECT_EQ(open_key(4, self, keys[0], own).status().code(), Code::data_loss);
  EXPECT_EQ(open_key(5, self, keys[1], own).status().code(), Code::data_loss);
  EXPECT_TRUE(open_key(4, self, keys[1], own).ok());
}

TEST(Credentials, AKeyThatWasChangedOrIsMissingIsFound) {
  const Token job = Token::random();
  const auto world = world_of(4, 1);
  const WorldMember self = world.members.front();
  const Token own = credential_of(job, self);
  EXPECT_NE(open_key(4, self, "", own).status().message().find("no key for a#0"),
            std::string::npos);

  const std::string good = sealed_keys(job, world).front();
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_EQ(open_key(4, self, changed, own).status().code(), Code::data_loss) << i;
    EXPECT_EQ(open_key(4, self, good.substr(0, i), own).status().code(), Code::data_loss) << i;
  }
  EXPECT_EQ(open_key(4, self, good + "x", own).status().code(), Code::data_loss);
}

}  // namespace
}  // namespace hvd
