#include "base/protocol/worker_link.h"

#include <gtest/gtest.h>

#include "base/versions.h"
#include "base/wire.h"
#include "tests/base/protocol/message_checks.h"

namespace hvd::worker_link {
namespace {

using test::expect_sound;
using test::payload_of;

Welcome welcome() {
  Welcome m("job", Token::random());
  m.worker = "a#1";
  m.incarnation = 77;
  m.rendezvous_host = "::1";
  m.rendezvous_port = 65'535;
  m.advertise_address = "10.0.0.1";
  m.world_follows = true;
  m.elastic = true;
  m.bound = true;
  return m;
}

TEST(WorkerLinkMessages, AreSound) {
  expect_sound(welcome());
  expect_sound(World{5, false, "{}", "key"});
  expect_sound(Stop{"because"});
  expect_sound(Initialised{-1});
  expect_sound(Done{});
  expect_sound(Ready{});
  expect_sound(Leave{});
  expect_sound(Committed{3});
  expect_sound(Ping{});
  expect_sound(AskActivity{9});
  expect_sound(Activity{9, 2, "nothing", "a"});
  expect_sound(ActivityWanted{});
  expect_sound(WorkReport{{1, 2, 3, {{Collective::send_recv, 4, 5}}}});
  expect_sound(DriverGone{true});
  expect_sound(DriverGone{false, "::1", 4000});
  expect_sound(Mark{"3.17.1"});
  expect_sound(Alive{});
}

TEST(WorkerLinkMessages, KeepEveryField) {
  const auto sent = welcome();
  const auto received = Welcome::decode(payload_of(sent));
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(received->job_id, "job");
  EXPECT_EQ(received->credential.bytes(), sent.credential.bytes());
  EXPECT_EQ(received->worker, "a#1");
  EXPECT_EQ(received->incarnation, 77U);
  EXPECT_EQ(received->rendezvous_host, "::1");
  EXPECT_EQ(received->rendezvous_port, 65'535);
  EXPECT_EQ(received->advertise_address, "10.0.0.1");
  EXPECT_TRUE(received->world_follows);
  EXPECT_TRUE(received->elastic);
  EXPECT_EQ(Initialised::decode(payload_of(Initialised{42}))->pid, 42);
  EXPECT_EQ(Stop::decode(payload_of(Stop{"because"}))->reason, "because");
  EXPECT_EQ(Committed::decode(payload_of(Committed{43}))->generation, 43U);
  EXPECT_TRUE(DriverGone::decode(payload_of(DriverGone{true}))->gone);
  EXPECT_EQ(Mark::decode(payload_of(Mark{"3.17"}))->commit, "3.17");
  EXPECT_EQ(AskActivity::decode(payload_of(AskActivity{9}))->id, 9U);
  const auto activity = Activity::decode(payload_of(Activity{9, 2, "a", "b", {}}));
  EXPECT_EQ(activity->id, 9U);
  EXPECT_EQ(activity->in_flight, "a");
  EXPECT_EQ(activity->last, "b");
  const auto world = World::decode(payload_of(World{5, true, "document", "key"}));
  EXPECT_EQ(world->generation, 5U);
  EXPECT_TRUE(world->effective);
  EXPECT_EQ(world->document, "document");
  EXPECT_EQ(world->key, "key");
}

TEST(WorkerLinkMessages, AMarkIsACommitAndNothingElse) {
  const std::string largest(3 * 20 + 2, '9');
  for (const auto& text :
       {std::string(), std::string("3"), std::string("a.b"), std::string("3.1 "),
        std::string("03.1"), std::string("3.1.0"), largest, std::string(60'000, '0') + "3.1"}) {
    EXPECT_EQ(Mark::decode(payload_of(Mark{text})).status().code(), Code::data_loss)
        << text.substr(0, 80);
  }
}

TEST(WorkerLinkMessages, AWelcomeWithoutAProperTokenIsRefused) {
  for (const std::size_t size : {0U, 31U, 33U}) {
    const auto payload = WireWriter()
                             .u32(wire_versions().worker_link)
                             .str("build")
                             .str("job")
                             .str(std::string(size, 't'))
                             .take();
    const auto refused = Welcome::decode(payload);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("token"), std::string::npos);
  }
}

}  // namespace
}  // namespace hvd::worker_link
