#include "base/protocol/join_link.h"

#include <gtest/gtest.h>

#include "tests/base/protocol/message_checks.h"

namespace hvd::join_link {
namespace {

using test::expect_sound;
using test::payload_of;

TEST(JoinLink, EveryMessageComesBackAndNoBrokenOneIsTaken) {
  expect_sound(Join{"build", "host", 4, {}, "pass"});
  expect_sound(Accepted{3'000, 60'000, "pass"});
  expect_sound(Heartbeat{});
  expect_sound(HeartbeatAck{});
  expect_sound(Begin{});
  expect_sound(Begun{});
  expect_sound(Dismissed{});
  expect_sound(Refused{"reason", true});
}

TEST(JoinLink, FieldsComeBackAsTheyWere) {
  const auto join = Join::decode(payload_of(Join{"build", "host", 4}));
  ASSERT_TRUE(join.ok());
  EXPECT_EQ(join->build_id, "build");
  EXPECT_EQ(join->host, "host");
  EXPECT_EQ(join->slots, 4);
  for (const bool final : {false, true}) {
    const auto refused = Refused::decode(payload_of(Refused{"reason", final}));
    ASSERT_TRUE(refused.ok());
    EXPECT_EQ(refused->reason, "reason");
    EXPECT_EQ(refused->final, final);
  }
}

}  // namespace
}  // namespace hvd::join_link
